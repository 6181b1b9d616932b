"""The lineage: one paper, one file. Adding a model is one file here and one line in MODELS."""

from typing import TYPE_CHECKING

from seqloom.config import named_class

if TYPE_CHECKING:
    from seqloom.batch import Backbone

MODELS = {
    "ngram": "ngram:Ngram",
    "nnlm": "nnlm:Nnlm",
    "word2vec": "word2vec:Word2vec",
    "glove": "glove:Glove",
    "fasttext": "fasttext:FastText",
    "rnn": "rnn:Rnn",
    "irnn": "irnn:Irnn",
    "jordan": "jordan:Jordan",
    "gru": "gru:Gru",
    "lstm": "lstm:Lstm",
    "awd-lstm": "awd_lstm:AwdLstm",
    "big-lstm": "big_lstm:BigLstm",
    "elmo": "elmo:Elmo",
    "gpt": "gpt:Gpt",
    "gpt2": "gpt2:Gpt2",
    "gpt3": "gpt3:Gpt3",
    "music-transformer": "music_transformer:MusicTransformer",
    "transformer-xl": "transformer_xl:TransformerXl",
    "reformer": "reformer:Reformer",
    "xlnet": "xlnet:Xlnet",
    "bert": "bert:Bert",
    "roberta": "roberta:Roberta",
    "xlm": "xlm:Xlm",
    "xlm-r": "xlm_r:XlmR",
    "albert": "albert:Albert",
    "electra": "electra:Electra",
    "ernie": "ernie:Ernie",
    "bilstm-cnn": "bilstm_cnn:BilstmCnn",
    "text-cnn": "text_cnn:TextCnn",
    "bytenet": "bytenet:Bytenet",
    "seq2seq": "seq2seq:Seq2seq",
    "bahdanau": "bahdanau:Bahdanau",
    "luong": "luong:Luong",
    "gnmt": "gnmt:Gnmt",
    "bytenet-mt": "bytenet:BytenetMt",
    "convs2s": "convs2s:ConvS2s",
    "transformer": "transformer:Transformer",
    "bart": "bart:Bart",
    "show-tell": "show_tell:ShowTell",
    "show-attend-tell": "show_attend_tell:ShowAttendTell",
    "captioner": "captioner:PatchCaptioner",
}
OWN = {"cell": "own_cell:OwnCell"}  # made of code that the user brings: no paper, no presets


def model_class(name: str) -> "type[Backbone]":
    return named_class("model", name, MODELS | OWN, __name__)

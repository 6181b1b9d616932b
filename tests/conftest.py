import contextlib
import os
import random
import sys
import zlib

# some CPUs advertise AMX that they cannot use: bf16 would die with SIGILL
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# one thread a test process: they run side by side, and threads that wait for each other make tiny models slow
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
import torch

# A forked process makes its thread pool anew at the first use. Two threads that do so at once fail ("Invalid thread pool!"),
# so its main thread does, before there are others. Seqloom itself never forks.
os.register_at_fork(after_in_child=lambda: torch.set_num_threads(torch.get_num_threads()))

# Chance is the same in every run and in any order of the tests, so that only a change of the code can break them.
# With another number the same tests look elsewhere: SEQLOOM_TEST_SEED=1 make test
SEED = os.environ.get("SEQLOOM_TEST_SEED", "")
with contextlib.suppress(ModuleNotFoundError):  # a machine that runs the tests of its GPU alone may lack it
    from hypothesis import HealthCheck, settings

    slow = [HealthCheck.too_slow]  # how fast this machine is now breaks no test either
    settings.register_profile("seqloom", derandomize=not SEED, deadline=None, suppress_health_check=slow)
    settings.load_profile("seqloom")


def start_chance(name):
    number = zlib.crc32(f"{SEED} {name}".encode())
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef, request):
    start_chance(f"{request.node.nodeid} {fixturedef.argname}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item):
    start_chance(item.nodeid)
    if "seqloom.progress" in sys.modules:  # a command with --quiet stays quiet in its process
        sys.modules["seqloom.progress"].QUIET = False


SLOW = (
    "batches/test_budgets.py",
    "batches/test_shortcuts.py",
    "blocks/test_large_vocabulary.py",
    "blocks/test_uncompiled.py",
    "cli/test_bad_input.py",
    "cli/test_data.py",
    "cli/test_fuzz.py",
    "cli/test_translate.py",
    "cli/test_using.py",
    "comparison/test_damaged.py",
    "comparison/test_plan.py",
    "comparison/test_run.py",
    "comparison/test_solve.py",
    "contract/test_encoders.py",
    "contract/test_pairs.py",
    "contract/test_planted.py",
    "contract/test_planted_pairs.py",
    "contract/test_properties.py",
    "contract/test_reset.py",
    "convert/test_bad_folders.py",
    "convert/test_elsewhere.py",
    "convert/test_exchange.py",
    "convert/test_task_exchange.py",
    "decode/test_fill.py",
    "decode/test_search.py",
    "evaluate/test_mix.py",
    "evaluate/test_suites_parity.py",
    "metrics/test_differences.py",
    "metrics/test_intervals.py",
    "metrics/test_variances.py",
    "models/test_big_lstm.py",
    "models/test_bilstm_cnn.py",
    "models/test_marian_parity.py",
    "objectives/test_masked.py",
    "objectives/test_scheduled.py",
    "tasks/test_tag.py",
    "tasks/test_transfer.py",
    "objectives/test_translation_lm.py",
    "test_cost.py",
    "test_cost_objectives.py",
    "test_cost_pairs.py",
    "runs/test_training.py",
    "test_golden.py",
    "test_release_folders.py",
    "test_overwrite.py",
    "test_plugins.py",
    "runs/test_corpus.py",
    "test_python.py",
    "test_quickstart.py",
    "test_docs.py",
    "test_readme.py",
    "recipes/test_schema.py",
    "runs/test_seeds.py",
    "runs/test_language_model.py",
    "runs/test_task_report.py",
    "training/test_process.py",
    "runs/test_translator.py",
    "test_weights.py",
    "text/test_sentences.py",
    "runs/test_training.py::test_any_backbone_serves_any_task[choose",
    "runs/test_training.py::test_any_backbone_serves_any_task[span",
    "tokens/test_long_words.py",
    "training/test_checkpoint.py::test_killed_while_the_same_step_is_saved_again",
    "tokens/test_whitespace_and_case.py",
    "tokens/test_tokenizer.py",
    "training/test_average.py",
    "training/test_checkpoint.py",
    "training/test_find_rate.py",
    "training/test_killed_runs.py",
    "training/test_loop.py",
    "training/test_resume.py",
)  # files that take more than a few seconds: left out by `make test-fast`


# what takes so long that `make test` leaves it to `make test-all`, where quicker tests of the same thing stay: how names begin
LONG = (
    "test_docs.py::test_guides[compare]",
    "test_docs.py::test_page[coming-from/",
    "test_docs.py::test_guides[bodies]",
    "test_docs.py::test_tutorial[compare]",
    "test_docs.py::test_tutorial[pretrain]",
    "batches/test_budgets.py::test_a_word_budget_is_as_much_text_for_every_objective[3-",
    "batches/test_budgets.py::test_a_word_budget_is_as_much_text_for_every_objective[8-",
    "batches/test_budgets.py::test_a_word_budget_is_as_much_text_for_every_objective[1000-",
    "batches/test_prepare.py::test_killed_anywhere_it_ends_the_same[points0",
    "batches/test_prepare.py::test_killed_anywhere_it_ends_the_same[points2",
    "batches/test_shortcuts.py::test_the_surface_of_a_pair_does_not_tell_its_label[next-32-word",
    "batches/test_shortcuts.py::test_the_surface_of_a_pair_does_not_tell_its_label[order-32-word",
    "cli/test_bad_input.py::test_a_signal_saves_the_state[2",
    "contract/test_pairs.py::test_overfits_sixteen_pairs[bahdanau",
    "contract/test_properties.py::test_overfits_sixteen_sequences[bytenet",
    "convert/test_bad_folders.py::test_a_planted_pickle[<lambda>",
    "convert/test_bad_folders.py::test_a_planted_pickle[raw",
    "evaluate/test_suites_parity.py::test_how_many_are_computed_together_changes_nothing[bert-masked",
    "evaluate/test_suites_parity.py::test_weights_in_half_precision_are_computed_with_in_single[bert-masked",
    "training/test_loop.py::test_it_learns[gpt2-tiny",
    "training/test_ranks.py::test_the_same_bits_on_one_and_two[gpt2",
    "test_plugins.py::test_it_runs_compiled",
    "test_windows.py::test_a_folder_has_one_owner",
    "test_windows.py::test_from_text_to_an_evaluated_run",
    "test_python.py::test_public_names_stay_what_they_are[import",
    "test_python.py::test_public_names_stay_what_they_are[before",
    "test_release_folders.py::test_a_comparison_of_the_release_goes_on",
    "batches/test_unknown_words.py::test_killed_anywhere_it_ends_the_same",
    "cli/test_words.py::test_what_a_context_adds",
    "comparison/test_archive.py::test_mutated_archives",
    "comparison/test_archive.py::test_suites_tasks_and_prepared_text",
    "comparison/test_run.py::test_taken_elsewhere_without_its_weights",
    "contract/test_pairs.py::test_same_seed_same_bits[gnmt",
    "contract/test_pairs.py::test_same_seed_same_bits[luong",
    "contract/test_pairs.py::test_same_seed_same_bits[bahdanau",
    "contract/test_pairs.py::test_same_seed_same_bits[convs2s",
    "contract/test_pairs.py::test_same_seed_same_bits[bytenet",
    "contract/test_traced.py::test_hidden_words",
    "convert/test_elsewhere.py",
    "metrics/test_scaling.py::test_the_truth_is_covered",
    "models/test_big_lstm.py::test_a_run_learns_loads_and_measures",
    "models/test_bilstm_cnn.py::test_words_that_nobody_has_seen",
    "objectives/test_denoising.py::test_every_encoder_decoder_can_be_trained_with_it",
    "objectives/test_masked.py::test_it_learns_what_it_is_shown",
    "objectives/test_scheduled.py::test_interruptions_change_no_bit",
    "runs/test_calibration.py::test_a_planted_wrong_temperature_is_noticed",
    "runs/test_translator.py::test_bleu_can_decide_which_weights_are_kept",
    "runs/test_training.py::test_any_backbone_serves_any_task[choose",
    "runs/test_training.py::test_any_backbone_serves_any_task[span",
    "tokens/test_long_words.py",
    "training/test_checkpoint.py::test_killed_while_the_same_step_is_saved_again",
    "training/test_find_rate.py::test_the_suggestion_is_repeatable_and_trains",
    "training/test_precision.py::test_it_learns_in_fp16",
)


@pytest.hookimpl(tryfirst=True)  # before those that are not asked for are left out
def pytest_collection_modifyitems(items):
    """The longest come first: at the end the other process would wait for them."""
    items.sort(key=lambda item: "test_guides" not in item.nodeid)
    for item in items:
        if item.nodeid.removeprefix("tests/").startswith(LONG):
            item.add_marker(pytest.mark.long)
        if item.nodeid.partition("::")[0].endswith(SLOW):
            item.add_marker(pytest.mark.slow)

"""A server for runs of every kind: OpenAI's shapes for writing and vectors, and what else a run can do (`seqloom serve`).

    engine      the thread that owns a model: texts that are being written join and leave between steps, other calls are batched
    messages    what may be asked, as types that check it; answers and refusals
    mailbox     from the engines' threads into the event loop
    completions writing and scoring by OpenAI's completions
    abilities   what each run can be asked
    inside      attention, cells and beam trees, in amounts that a page can draw
    describe    /openapi.json
    app         the routes and what stands before all of them: host, key, limits
    page        what a browser gets: the page and its script, a tab for everything that the models can
    save        the page as one file, with the answers to some texts
    runs        the learning curves of a folder of runs, also of those that are being trained
    protocol    HTTP connections with deadlines
    start       load the runs, listen, drain

Only this package needs the packages of the extra `serve`.
"""

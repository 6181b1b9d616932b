"""Jobs of a comparison as children of the test's own process: torch is loaded already, which takes longer than a small job."""

import os
import signal
import sys
from importlib import import_module

from seqloom.comparison import job
from seqloom.comparison.engines import here

LAUNCH = here.launch


class Forked:
    """What `Jobs` asks of a process."""

    def __init__(self, call, output, environment):
        sys.stdout.flush()
        sys.stderr.flush()
        self.code = None
        self.pid = os.fork()
        if self.pid == 0:
            self.work(call, output, environment)

    def work(self, call, output, environment):
        code = 1
        try:
            os.environ.update(environment)
            os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads are not forked along
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if output is not None:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
            sys.argv = [call[2], *call[3:]]
            code = job.main()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)

    def poll(self):
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = None if pid == 0 else os.waitstatus_to_exitcode(status)
        return self.code

    def wait(self, timeout=None):
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code

    def terminate(self):
        os.kill(self.pid, signal.SIGTERM)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)


def forked_jobs(patch):
    """Every comparison that is begun in this process forks its jobs from now on."""
    import_module("torch._dynamo")  # optimizers load it: once here instead of once a job
    patch.setattr(here, "launch", Forked)

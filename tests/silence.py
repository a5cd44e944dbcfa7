"""Let a cell fail that shows nothing for too long.

The part `outputs` of the suite names this file in PYTHONSTARTUP, so IPython runs it in each kernel
that compares stored outputs. Silence is counted in seconds that the kernel had of a processor: on
a busy machine a cell takes longer, but it is not more silent.
"""


def watch(shell):
    """Watch all cells of a shell; a kernel sends a message for whatever a cell shows."""
    from time import process_time

    send, run = shell.kernel.session.send, shell.run_cell_async
    heard = longest = 0.0

    def note():
        nonlocal heard, longest
        now = process_time()
        longest, heard = max(longest, now - heard), now

    def send_and_note(*args, **how):
        note()
        return send(*args, **how)

    async def run_and_judge(*args, **how):
        nonlocal heard, longest
        heard, longest = process_time(), 0.0
        result = await run(*args, **how)
        note()
        if longest > shell.most_silent and result.success:
            try:
                raise TimeoutError(f"{longest:.1f} s without a sign of progress")
            except TimeoutError as problem:
                shell.showtraceback()
                result.error_in_exec = problem
        return result

    shell.kernel.session.send, shell.run_cell_async = send_and_note, run_and_judge
    # Two seconds on a quiet machine of today; a processor that is shared, or older, takes longer.
    shell.most_silent = 6.0


watch(get_ipython())  # noqa: F821
del watch  # a lesson shall find no name that it has not defined

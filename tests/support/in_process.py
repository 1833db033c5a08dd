"""Running a program of tools/ in the tests' own process: quicker than starting Python, and its parts can be replaced."""


class Result:
    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err


def run(main, arguments, capsys):
    """main(arguments): exit status and what was printed."""
    capsys.readouterr()
    try:
        status = main([str(a) for a in arguments])
    except SystemExit as e:
        status = e.code
    captured = capsys.readouterr()
    return Result(status, captured.out, captured.err)

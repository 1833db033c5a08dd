"""What `descent scale --json` answers, as claims keep and show it, and intervals of what it does not compare itself."""
from .models import intervals
from .section import interval

_ALWAYS = ("steps", "predictions", "items", "right", "tokens", "token_steps", "multiply_adds", "multiply_adds_by")


def kept(told, *metrics):
    """The rows of an answer with these metrics, their intervals, and their differences to the trained T where that was measured."""
    rows = []
    for row in told["rows"]:
        one = {name: row[name] for name in _ALWAYS + metrics}
        one["intervals"] = {name: row["intervals"][name] for name in metrics}
        if row.get("difference"):
            one["difference"] = {name: row["difference"][name] for name in metrics}
        rows.append(one)
    return rows


def series(rows, metric):
    """(values, lows, highs), as plot.curve takes them."""
    return ([row[metric] for row in rows], *([row["intervals"][metric][side] for row in rows] for side in (0, 1)))


def wilson(rows):
    """(values, lows, highs) of the share of right answers, by Wilson, whose intervals hold also where all are right."""
    sides = [intervals.wilson(row["right"], row["items"]) for row in rows]
    return [row["right"] / row["items"] for row in rows], [low for low, _ in sides], [high for _, high in sides]


def difference(one, other):
    """Loss of one run less that of another on the same inputs (Context.scale's, at one T each): value and paired 95% interval."""
    if one["predictions"] != other["predictions"]:
        raise ValueError("the two runs are of different inputs")
    nats, predictions = [a - b for a, b in zip(one["nats"], other["nats"])], one["predictions"]
    low, high = intervals.bootstrap(nats, predictions)
    return {"value": sum(nats) / sum(predictions), "low": low, "high": high}


def cells(row, metric, form=".4f"):
    """Two cells: value and 95% interval."""
    return f"{row[metric]:{form}}", interval(*row["intervals"][metric], form)


def difference_cells(row, metric, form="+.4f"):
    """Two cells: the difference to the trained T and its paired interval; empty at the trained T itself."""
    told = row.get("difference", {}).get(metric)
    if not told or told["value"] == told["low"] == told["high"] == 0:
        return "", ""
    return f"{told['value']:{form}}", interval(told["low"], told["high"], form)


def a_token(row):
    """Counted multiply-adds a token, in millions."""
    return row["multiply_adds"] / row["tokens"] / 1e6

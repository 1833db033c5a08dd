"""What tools write into documents: it stands between two lines that name it, `<!-- NAME -->` and `<!-- /NAME -->`."""


def put_between(path, name, text):
    """Writes `text`, lines that end, there, whatever was there before. ValueError: the document has no such place, or several."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    page = path.read_text(encoding="utf-8")
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ValueError(f"{path} has no lines {begin.strip()} and {end.strip()}, in that order, once each")
    before, rest = page.split(begin)
    path.write_text(before + begin + text + end + rest.split(end)[1], encoding="utf-8")

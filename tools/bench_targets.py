"""What tools/bench.py measured, against what is aimed at: each target with its figure, whether it is met, and the counted
bytes and operations it rests on."""

SHIPPED = ("nrgpt-shakespeare", "nrgpt-listops", "nrgpt-listops-30k", "nrgpt-listops-scalar")

# GPT-2 124M and Llama 160M, multiply-adds a token: blocks, head, and attention at the 64 to 96 tokens that llama-bench sees.
_WIDTH, _LAYERS, _HIDDEN = 768, 12, 3072
_SEEN = 80


def peer_multiply_adds(name):
    attention = _LAYERS * 2 * _WIDTH * _SEEN
    if name == "gpt2-124m":
        return _LAYERS * (4 * _WIDTH ** 2 + 2 * _WIDTH * _HIDDEN) + 50257 * _WIDTH + attention
    return _LAYERS * (4 * _WIDTH ** 2 + 3 * _WIDTH * _HIDDEN) + 32000 * _WIDTH + attention


def find(told, model, what, **shape):
    """The line of a model's bench, or None."""
    for line in told["ours"].get(model, {"lines": ()})["lines"]:
        if line["what"] == what and all(line[k] == v for k, v in shape.items()):
            return line
    return None


def _target(text, measured, wanted, at_least, counted=None):
    met = measured >= wanted if at_least else measured <= wanted
    return {"target": text, "measured": measured, "wanted": wanted, "at_least": at_least, "met": met, "counted": counted or {}}


def _counted(line):
    return {"tokens": line["tokens"], "seconds": line["seconds"]["median"], "limit_seconds": line["work"]["limit_seconds"],
            "multiply_adds": line["work"]["multiply_adds"], "bytes": line["work"]["bytes"],
            "read_bandwidth": line["work"]["read_bandwidth"]}


def _share(line, limit):
    return line["work"]["limit_seconds"][limit] / line["seconds"]["median"]


def _pairs(told):
    decode = find(told, "nrgpt-90m-q8_0", "decode", context=64, batch=1)
    cem = find(told, "cem-llama160m-tied-q8_0", "decode", context=64, batch=1)
    for pair in told["pairs"]:
        if pair["type"] != "q8_0":
            continue
        if pair["ours"] == "nrgpt-90m" and decode:
            yield _target("NRGPT-90M T 12 Q8_0 decode over GPT-2 124M, tokens/s", pair["ratio"], 1.0, True, _counted(decode))
            work = decode["work"]["multiply_adds"]
            each = (work["weights"] + work["attention"] * _SEEN / decode["context"] + work["head"]) / decode["tokens"]
            yield _target("the same in counted multiply-adds/s", pair["ratio"] * each / peer_multiply_adds("gpt2-124m"), 2.0, True,
                          {"ours_per_token": each, "theirs_per_token": peer_multiply_adds("gpt2-124m")})
        elif cem:
            yield _target("CEM of Llama-160M's sizes, T 1, tied head, over Llama 160M, tokens/s", pair["ratio"], 1.3, True,
                          _counted(cem))


def _shares(told):
    for text, line, limit, wanted in (
            ("decode: weight bytes/s over read bandwidth", find(told, "nrgpt-90m-q8_0", "decode", context=64, batch=1), "weights", 0.8),
            ("prefill of 512: over the product peak, in the cheaper form's operations",
             find(told, "nrgpt-90m-q8_0", "prefill", context=512), "compute_in_cheaper_form", 0.7),
            ("16 texts at context 64: over the product peak", find(told, "nrgpt-90m-q8_0", "decode", context=64, batch=16), "compute",
             0.7)):
        if line:
            yield _target(text, _share(line, limit), wanted, True, _counted(line))


# Of reading as many bytes, one vector, equal scales: (from, way, wanted).
_OF_READING = (("L3", "forth", 0.9), ("memory", "forth", 0.9), ("L2", "back", 0.75), ("L3", "back", 0.85), ("memory", "back", 0.85))


def _products(told):
    for where, way, wanted in _OF_READING:
        for product in told["products"]:
            if (product["type"], product["scales"], product["from"], product["vectors"]) == ("Q8_0", "tile", where, 1):
                yield _target(f"{'W x' if way == 'forth' else 'W^T u'}, Q8_0 with equal scales, from {where}: bytes/s over those of reading",
                              product[way]["of_reading"], wanted, True,
                              {"bytes": product["bytes"], "seconds": product[way]["seconds"], "reading": product["read_seconds"]})


def _ratios(told):
    for model, what, beside, text, most in (
            ("nrgpt-90m-q8_0", "sweep", "steps and heads", "T = 1..32 in one pass over 32 steps and 32 heads, NRGPT-90M", 1.15),
            ("nrgpt-shakespeare", "sweep", "steps alone", "T = 1..32 over the 32 steps alone, V of 65", 1.15),
            ("nrgpt-90m-q8_0", "latency", "all at it", "a token at T 4 beside others at 32, over all at 4", 1.3)):
        line = find(told, model, what)
        if line:
            yield _target(text, line["beside"][beside]["ratio"], most, False, {"seconds": line["seconds"]["median"]})


def _drafts(told):
    """The shipped models' texts with drafts over the same without."""
    for name in SHIPPED:
        line = find(told, name, "drafts")
        if line:
            yield _target(f"drafts, {name}: tokens/s over those without", 1 / line["beside"]["without drafts"]["ratio"], 1.5, True,
                          {k: line[k] for k in ("drafted", "accepted", "tokens") if k in line})


def _rest(told):
    line = find(told, "nrgpt-90m-q8_0", "decode", context=512, batch=1)
    if told["plain"] and line:
        yield _target("NRGPT-90M at 512 tokens over plain PyTorch without a cache",
                      line["tokens_per_second"]["median"] * told["plain"]["seconds"]["median"], 100, True)
    for name in ("nrgpt-90m-q8_0", "cem-llama160m-tied-q8_0"):
        memory = told["ours"].get(name, {}).get("memory")
        if memory:
            yield _target(f"resident memory over file and cache, {name}", memory["ratio"], 1.1, False, memory)


def judge(told):
    """The targets that the figures are there for."""
    return [target for part in (_pairs, _drafts, _shares, _products, _ratios, _rest) for target in part(told)]


def line(target):
    sign = ">=" if target["at_least"] else "<="
    return f"{'met    ' if target['met'] else 'NOT met'}  {target['measured']:8.3f} {sign} {target['wanted']:g}  {target['target']}"

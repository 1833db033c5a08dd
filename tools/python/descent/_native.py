"""descent.h in ctypes: its constants, structs and functions, in its order and with nothing added.

tests/python/test_mirror.py compiles the header and fails where a size, an offset, a value or an argument here differs.
"""
import ctypes
import ctypes.util
import enum
import os
import pathlib
from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t,
                    c_uint8, c_uint16, c_uint32, c_uint64, c_void_p)

MESSAGE_SIZE = 512
MAX_STEPS = 65535
MAX_KINDS = 2
MAX_TERMS = 2
MAX_SCALES = 64
MAX_NSTEP = 16
SOLVERS = {"plain": 0, "anderson": 1}
HISTORIES = {"own": 0, "latest": 1, "last": 2}
STEP_RULES = {"plain": 0, "angular": 1}
NOISE_SCHEDULES = {"fixed": 0, "decay": 1}
ROW_BUCKETS = 12
METRICS = 7
SWEEP_DEPTHS = 1024
EXITS = {name: i for i, name in enumerate(["none", "state", "cosine", "energy", "entropy", "kl", "argmax"])}

ADD_SPECIAL = 1
PARSE_SPECIAL = 2

PAGE_TYPES = {"f32": 0, "f16": 1, "bf16": 2, "q8": 3}
OBSERVE = {"energy": 1, "convergence": 2, "state": 4, "final": 8, "slope": 16, "logits": 32}
INTERVENTIONS = {"set_x": 0, "add_x": 1, "set_g": 2, "add_g": 3}


class Code(enum.IntEnum):
    OK = 0
    BAD_ARGUMENT = 1
    BAD_FILE = 2
    IO = 3
    UNSUPPORTED = 4
    LIMIT = 5
    NO_MEMORY = 6
    DIVERGED = 7


class Status(Structure):
    _fields_ = [("code", c_int), ("message", c_char * MESSAGE_SIZE)]


class Depth(Structure):
    _fields_ = [("steps", c_uint16 * MAX_KINDS)]


class ExitCost(Structure):
    _fields_ = [("readings", c_uint64), ("energies", c_uint64)]


class Exit(Structure):
    _fields_ = [("criterion", c_int), ("threshold", c_float), ("min_steps", c_uint16), ("check_every", c_uint16),
                ("first", c_uint32)]


class Noise(Structure):
    _fields_ = [("seed", c_int64), ("sigma", c_float), ("schedule", c_int)]


class Motion(Structure):
    _fields_ = [("n_scales", c_uint32), ("step_scale", c_float * MAX_SCALES), ("momentum", c_float), ("rule", c_int),
                ("noise", Noise)]


class Solver(Structure):
    _fields_ = [("method", c_int), ("nstep", c_uint32), ("residual", c_float)]


class History(Structure):
    _fields_ = [("policy", c_int), ("prompt_steps", c_uint32), ("prompt", c_uint32)]


class ModelInfo(Structure):
    _fields_ = [
        ("name", c_char_p), ("family", c_char_p), ("variant", c_char_p), ("weight_type", c_char_p),
        ("parameters", c_uint64), ("file_bytes", c_uint64), ("resident_bytes", c_uint64), ("fingerprint", c_uint64),
        ("width", c_uint32), ("vocab", c_uint32), ("context", c_uint32), ("layers", c_uint32),
        ("kinds", c_uint32), ("kind_names", c_char_p * MAX_KINDS), ("trained", Depth), ("deepens", c_bool),
        ("terms", c_uint32 * MAX_KINDS), ("term_names", c_char_p * MAX_TERMS * MAX_KINDS),
    ]


class Path(Structure):
    _fields_ = [("numbers", c_char_p), ("pages", c_bool), ("arithmetic", c_char_p), ("one", c_char_p), ("several", c_char_p)]


class TensorInfo(Structure):
    _fields_ = [("name", c_char_p), ("type", c_char_p), ("n_dims", c_uint32), ("dims", c_uint64 * 4), ("bytes", c_uint64)]


class TextPart(Structure):
    _fields_ = [("text", c_char_p), ("bytes", c_size_t), ("parse_special", c_bool)]


class TokenizerInfo(Structure):
    _fields_ = [("model", c_char_p), ("vocab", c_uint32), ("bos", c_int64), ("eos", c_int64), ("pad", c_int64),
                ("unknown", c_int64), ("adds_bos", c_bool), ("adds_eos", c_bool)]


class CacheOptions(Structure):
    _fields_ = [("page_type", c_int), ("byte_limit", c_uint64)]


class CacheUsage(Structure):
    _fields_ = [("bytes", c_uint64), ("byte_limit", c_uint64), ("pages", c_uint64), ("idle_pages", c_uint64),
                ("shared_hits", c_uint64)]


class SequenceOptions(Structure):
    _fields_ = [("depth", Depth), ("motion", Motion), ("solver", Solver), ("exit", Exit), ("history", History),
                ("share_group", c_uint64), ("no_sharing", c_bool)]


class Site(Structure):
    _fields_ = [("layer", c_uint32), ("kind", c_uint32), ("step", c_uint32), ("position", c_size_t)]


class Observation(Structure):
    _fields_ = [("site", Site), ("final", c_bool), ("energy", c_float * MAX_TERMS), ("own_change", c_float),
                ("history_change", c_float), ("update_norm", c_float), ("relative_change", c_float),
                ("slope", c_float), ("x", POINTER(c_float)), ("g", POINTER(c_float)),
                ("logits", POINTER(c_float))]


class Rate(Structure):
    _fields_ = [("low", c_double), ("high", c_double), ("off_diagonal", c_double)]


class State(Structure):
    _fields_ = [("site", Site), ("values", POINTER(c_float))]


class Change(Structure):
    _fields_ = [("state", State), ("how", c_int)]


class Reach(Structure):
    _fields_ = [("changes", POINTER(Change)), ("n_changes", c_size_t), ("starts", POINTER(State)), ("n_starts", c_size_t),
                ("previous", c_bool), ("noise", c_float), ("noise_seed", c_int64)]


class BatchOptions(Structure):
    _fields_ = [("max_rows", c_uint32), ("threads", c_uint32)]


class StepReport(Structure):
    _fields_ = [("rows", c_size_t), ("finished", c_size_t), ("diverged", c_size_t), ("rows_by_step", c_size_t * ROW_BUCKETS),
                ("steps_sum", c_uint64)]


class Reading(Structure):
    _fields_ = [("sequence", c_void_p), ("position", c_size_t)]


class LogitBias(Structure):
    _fields_ = [("token", c_uint32), ("bias", c_float)]


class Sampling(Structure):
    _fields_ = [
        ("temperature", c_float), ("top_k", c_int32), ("top_p", c_float), ("min_p", c_float), ("typical_p", c_float),
        ("repetition_penalty", c_float), ("presence_penalty", c_float), ("frequency_penalty", c_float),
        ("bias", POINTER(LogitBias)), ("n_bias", c_size_t), ("ignore_eos", c_bool), ("min_tokens", c_uint32),
        ("seed", c_int64), ("prompt", c_uint32), ("choice", c_uint32),
    ]


Progress = CFUNCTYPE(c_bool, c_void_p, c_uint64, c_uint64)
Observer = CFUNCTYPE(None, c_void_p, POINTER(Observation))


class SchedulerOptions(Structure):
    _fields_ = [("cache", CacheOptions), ("threads", c_uint32), ("chunk", c_uint32), ("max_running", c_uint32),
                ("notify", CFUNCTYPE(None, c_void_p)), ("notify_user", c_void_p)]


class Choice(Structure):
    _fields_ = [("position", c_size_t), ("token_chosen", c_bool), ("token", c_uint32), ("logits", POINTER(c_float)),
                ("steps", c_uint32)]


class GenerationReport(Structure):
    _fields_ = [
        ("end", c_int), ("status", Status), ("prompt_count", c_size_t), ("reused", c_size_t), ("deepened", c_size_t),
        ("generated", c_size_t), ("unconverged", c_size_t), ("drafted", c_size_t), ("accepted", c_size_t), ("row_steps", c_uint64), ("logits_read", c_uint64),
        ("exit_cost", ExitCost), ("pauses", c_uint32),
        ("queue_seconds", c_double), ("prompt_seconds", c_double), ("generation_seconds", c_double),
    ]


class GenerationCalls(Structure):
    _fields_ = [("chosen", CFUNCTYPE(c_bool, c_void_p, POINTER(Choice))),
                ("ended", CFUNCTYPE(None, c_void_p, POINTER(GenerationReport))), ("observe", Observer)]


class GenerationOptions(Structure):
    _fields_ = [
        ("prompt", POINTER(c_uint32)), ("prompt_count", c_size_t), ("limit", c_size_t), ("sampling", Sampling),
        ("depth", Depth), ("motion", Motion), ("solver", Solver), ("exit", Exit), ("history", History), ("draft_steps", c_int),
        ("share_group", c_uint64), ("read_prompt", c_bool), ("observe", c_int), ("observe_prompt", c_bool), ("reach", POINTER(Reach)), ("like", c_void_p), ("background", c_bool), ("calls", GenerationCalls),
        ("user", c_void_p),
    ]


class SchedulerState(Structure):
    _fields_ = [
        ("running", c_size_t), ("waiting", c_size_t), ("rows", c_size_t), ("steps", c_uint64), ("row_steps", c_uint64),
        ("steps_by_rows", c_uint64 * ROW_BUCKETS), ("rows_by_step", c_uint64 * ROW_BUCKETS), ("steps_sum", c_uint64),
        ("pauses", c_uint64), ("seconds_since_step", c_double), ("cache", CacheUsage),
    ]


class WeightCost(Structure):
    _fields_ = [("multiply_adds", c_uint64), ("of_bytes", c_uint64), ("product_bytes", c_uint64), ("bytes", c_uint64)]


class KindCost(Structure):
    _fields_ = [("step", WeightCost), ("entry", WeightCost), ("attention", c_uint64), ("history", c_uint64), ("energy", c_uint64),
                ("saved_in_prompts", c_uint64), ("saved_of_bytes", c_uint64)]


class ModelCost(Structure):
    _fields_ = [("info", POINTER(ModelInfo)), ("kinds", KindCost * MAX_KINDS), ("head", WeightCost), ("strict", c_bool)]


class TokenCost(Structure):
    _fields_ = [("weights", c_uint64), ("attention", c_uint64), ("of_bytes", c_uint64), ("product_bytes", c_uint64),
                ("history", c_uint64), ("saved", c_uint64), ("saved_of_bytes", c_uint64)]


class MultiplyAdds(Structure):
    _fields_ = [("weights", c_uint64), ("attention", c_uint64), ("head", c_uint64), ("exit", c_uint64)]


class Measure(Structure):
    _fields_ = [
        ("depth", Depth), ("code", c_int), ("predictions", c_uint64), ("bytes", c_uint64), ("nats", c_double),
        ("items", c_uint64), ("right", c_uint64), ("tokens", c_uint64), ("token_steps", c_uint64), ("cost", MultiplyAdds),
        ("energy", c_double), ("relative_change", c_double), ("converged", c_uint64), ("seconds", c_double),
    ]


class SweepResult(Structure):
    _fields_ = [
        ("end", c_int), ("status", Status), ("measures", POINTER(Measure)), ("n_depths", c_size_t), ("row_steps", c_uint64),
        ("exit_cost", ExitCost), ("pauses", c_uint32), ("shared", c_bool), ("queue_seconds", c_double), ("seconds", c_double),
    ]


class SweepOptions(Structure):
    _fields_ = [
        ("tokens", POINTER(c_uint32)), ("count", c_size_t), ("first", c_size_t), ("depths", POINTER(Depth)),
        ("n_depths", c_size_t), ("how", SequenceOptions), ("energy", c_bool), ("convergence", c_bool), ("threshold", c_float),
        ("experiment", c_uint64), ("background", c_bool), ("done", CFUNCTYPE(None, c_void_p, POINTER(SweepResult))),
        ("user", c_void_p),
    ]


class Estimate(Structure):
    _fields_ = [("value", c_double), ("low", c_double), ("high", c_double)]


class ScalingRow(Structure):
    _fields_ = [("sum", Measure), ("inputs", c_uint64), ("diverged", c_uint64), ("metrics", Estimate * METRICS),
                ("difference", Estimate * METRICS)]


class ScalingOptions(Structure):
    _fields_ = [("resamples", c_uint32), ("level", c_double), ("seed", c_uint64), ("reference", c_int), ("progress", Progress),
                ("user", c_void_p)]


class TensorChoice(Structure):
    _fields_ = [("pattern", c_char_p), ("type", c_int)]


class QuantizedTensor(Structure):
    _fields_ = [
        ("name", c_char_p), ("from", c_char_p), ("to", c_char_p), ("n_dims", c_uint32), ("dims", c_uint64 * 4),
        ("bytes", c_uint64), ("before", c_uint64), ("matrix", c_bool), ("tiled", c_bool), ("changed", c_bool),
        ("rms", c_double), ("rms_error", c_double), ("note", c_char_p),
    ]


class QuantizeOptions(Structure):
    _fields_ = [
        ("type", c_int), ("embedding_type", c_int), ("head_type", c_int), ("choices", POINTER(TensorChoice)),
        ("n_choices", c_size_t), ("scales", c_int), ("importance", c_void_p), ("requantize", c_bool), ("replace", c_bool),
        ("threads", c_uint32), ("written", CFUNCTYPE(c_bool, c_void_p, POINTER(QuantizedTensor))),
        ("progress", CFUNCTYPE(c_bool, c_void_p, c_uint64, c_uint64)), ("user", c_void_p),
    ]


class TrialOptions(Structure):
    _fields_ = [("type", c_int), ("tiled", c_bool), ("rows", c_size_t), ("cols", c_size_t), ("vectors", c_uint32)]


STRUCTS = {
    "descent_status": Status, "descent_depth": Depth, "descent_path": Path, "descent_exit": Exit, "descent_exit_cost": ExitCost,
    "descent_noise": Noise, "descent_motion": Motion, "descent_solver": Solver, "descent_history": History,
    "descent_model_info": ModelInfo, "descent_tensor_info": TensorInfo,
    "descent_tokenizer_info": TokenizerInfo, "descent_text_part": TextPart, "descent_cache_options": CacheOptions,
    "descent_cache_usage": CacheUsage,
    "descent_sequence_options": SequenceOptions, "descent_site": Site, "descent_observation": Observation, "descent_rate": Rate,
    "descent_state": State, "descent_change": Change, "descent_reach": Reach,
    "descent_batch_options": BatchOptions, "descent_step_report": StepReport, "descent_reading": Reading,
    "descent_logit_bias": LogitBias, "descent_sampling": Sampling, "descent_scheduler_options": SchedulerOptions,
    "descent_choice": Choice, "descent_generation_report": GenerationReport, "descent_generation_calls": GenerationCalls,
    "descent_generation_options": GenerationOptions, "descent_scheduler_state": SchedulerState,
    "descent_weight_cost": WeightCost, "descent_kind_cost": KindCost, "descent_model_cost": ModelCost,
    "descent_token_cost": TokenCost, "descent_multiply_adds": MultiplyAdds, "descent_measure": Measure,
    "descent_sweep_result": SweepResult, "descent_sweep_options": SweepOptions, "descent_estimate": Estimate,
    "descent_scaling_row": ScalingRow, "descent_scaling_options": ScalingOptions,
    "descent_tensor_choice": TensorChoice, "descent_quantized_tensor": QuantizedTensor,
    "descent_quantize_options": QuantizeOptions, "descent_trial_options": TrialOptions,
}

_status = POINTER(Status)
_handle = c_void_p  # a model, tokenizer, decoder, cache, sequence, batch, scheduler or generation
_out = POINTER(c_void_p)
_ids = POINTER(c_uint32)
_floats = POINTER(c_float)
_size = POINTER(c_size_t)

# Strings that hold NULs or are freed by hand come as c_void_p or POINTER(c_uint8): ctypes would cut or copy a c_char_p.
FUNCTIONS = {
    "descent_version": (c_char_p, []),
    "descent_isa": (c_char_p, []),
    "descent_threads_by_default": (c_uint32, []),
    "descent_cache_bytes_by_default": (c_uint64, []),
    "descent_path_at": (c_bool, [c_size_t, POINTER(Path)]),
    "descent_exit_name": (c_char_p, [c_int]),
    "descent_exit_default_threshold": (c_float, [c_int]),
    "descent_history_name": (c_char_p, [c_int]),
    "descent_model_open": (c_int, [c_char_p, _out, _status]),
    "descent_model_read": (c_int, [c_char_p, _out, _status]),
    "descent_model_close": (None, [_handle]),
    "descent_model_describe": (POINTER(ModelInfo), [_handle]),
    "descent_model_history_term": (c_double, [_handle, c_size_t]),
    "descent_model_tokenizer": (_handle, [_handle]),
    "descent_model_metadata": (c_bool, [_handle, c_size_t, POINTER(c_char_p), c_char_p, c_size_t]),
    "descent_model_tensor": (c_bool, [_handle, c_size_t, POINTER(TensorInfo)]),
    "descent_depth_parse": (c_int, [_handle, c_char_p, POINTER(Depth), _status]),
    "descent_depth_format": (c_char_p, [_handle, Depth, c_char_p]),
    "descent_tokenizer_describe": (POINTER(TokenizerInfo), [_handle]),
    "descent_tokenizer_encode": (c_int, [_handle, c_char_p, c_size_t, c_int, POINTER(_ids), _size, _status]),
    "descent_tokenizer_encode_parts": (c_int, [_handle, POINTER(TextPart), c_size_t, c_bool, POINTER(_ids), _size, _status]),
    "descent_tokenizer_has_text": (c_bool, [_handle, c_uint32]),
    "descent_tokenizer_piece": (POINTER(c_uint8), [_handle, c_uint32, _size]),
    "descent_tokenizer_spelling": (POINTER(c_uint8), [_handle, c_uint32, _size]),
    "descent_decoder_create": (c_int, [_handle, _out, _status]),
    "descent_decoder_destroy": (None, [_handle]),
    "descent_decoder_push": (POINTER(c_uint8), [_handle, c_uint32, _size]),
    "descent_decoder_held": (c_size_t, [_handle]),
    "descent_decoder_finish": (POINTER(c_uint8), [_handle, _size]),
    "descent_free": (None, [c_void_p]),
    "descent_cache_create": (c_int, [_handle, POINTER(CacheOptions), _out, _status]),
    "descent_cache_destroy": (None, [_handle]),
    "descent_cache_describe": (CacheUsage, [_handle]),
    "descent_sequence_create": (c_int, [_handle, POINTER(SequenceOptions), _out, _status]),
    "descent_cache_bytes_needed": (c_uint64, [_handle, c_int, c_uint64, POINTER(SequenceOptions)]),
    "descent_sequence_destroy": (None, [_handle]),
    "descent_sequence_append": (c_int, [_handle, _ids, c_size_t, _status]),
    "descent_sequence_truncate": (c_int, [_handle, c_size_t, _status]),
    "descent_sequence_set_depth": (c_int, [_handle, Depth, _status]),
    "descent_sequence_depth": (Depth, [_handle]),
    "descent_sequence_length": (c_size_t, [_handle]),
    "descent_sequence_tokens": (_ids, [_handle]),
    "descent_sequence_finished": (c_size_t, [_handle]),
    "descent_sequence_reused": (c_size_t, [_handle]),
    "descent_sequence_deepened": (c_size_t, [_handle]),
    "descent_sequence_steps_run": (c_uint64, [_handle]),
    "descent_sequence_exit_cost": (ExitCost, [_handle]),
    "descent_sequence_token_steps": (c_uint32, [_handle, c_size_t]),
    "descent_sequence_converged": (c_bool, [_handle, c_size_t]),
    "descent_sequence_state_code": (c_int, [_handle, _status]),
    "descent_sequence_state": (c_int, [_handle, c_size_t, _floats, _ids, _status]),
    "descent_sequence_save": (c_int, [_handle, c_char_p, _status]),
    "descent_sequence_restore": (c_int, [_handle, c_char_p, _out, _status]),
    "descent_sequence_observe": (c_int, [_handle, c_int, Observer, c_void_p, _status]),
    "descent_model_rate": (c_bool, [_handle, Site, POINTER(Rate)]),
    "descent_sequence_logits_read": (c_uint64, [_handle]),
    "descent_sequence_intervene": (c_int, [_handle, Site, c_int, _floats, _status]),
    "descent_sequence_start": (c_int, [_handle, Site, _floats, _status]),
    "descent_batch_create": (c_int, [_handle, POINTER(BatchOptions), _out, _status]),
    "descent_batch_destroy": (None, [_handle]),
    "descent_batch_add": (c_int, [_handle, _handle, c_size_t, _size, _status]),
    "descent_batch_remove": (None, [_handle, _handle]),
    "descent_batch_rows": (c_size_t, [_handle]),
    "descent_batch_step": (c_int, [_handle, POINTER(StepReport), _status]),
    "descent_batch_finish": (c_int, [_handle, _handle, _status]),
    "descent_batch_logits": (c_int, [_handle, POINTER(Reading), c_size_t, _floats, _status]),
    "descent_sampling_defaults": (Sampling, []),
    "descent_sampling_check": (c_int, [POINTER(Sampling), c_uint32, _status]),
    "descent_sample": (c_int, [POINTER(Sampling), _handle, _floats, c_uint32, _ids, c_size_t, c_size_t, _ids, _status]),
    "descent_scheduler_create": (c_int, [_handle, POINTER(SchedulerOptions), _out, _status]),
    "descent_scheduler_destroy": (None, [_handle]),
    "descent_scheduler_submit": (c_int, [_handle, POINTER(GenerationOptions), _out, _status]),
    "descent_generation_cancel": (None, [_handle]),
    "descent_scheduler_notify": (None, [_handle]),
    "descent_scheduler_describe": (SchedulerState, [_handle]),
    "descent_model_count": (c_int, [_handle, POINTER(ModelCost), _status]),
    "descent_cost_token": (TokenCost, [POINTER(ModelCost), Depth, c_uint64]),
    "descent_measure_add": (None, [POINTER(Measure), POINTER(Measure)]),
    "descent_measure_cost": (Measure, [POINTER(ModelCost), Depth, c_uint64, c_uint64]),
    "descent_scheduler_sweep": (c_int, [_handle, POINTER(SweepOptions), _out, _status]),
    "descent_sweep_steps": (c_uint64, [_handle, POINTER(Depth), c_size_t, POINTER(History), c_uint64]),
    "descent_metric_name": (c_char_p, [c_int]),
    "descent_scaling_summarize": (c_int, [POINTER(Measure), POINTER(c_uint64), c_size_t, c_size_t, POINTER(ScalingOptions),
                                          POINTER(ScalingRow), _status]),
    "descent_weight_type_name": (c_char_p, [c_int]),
    "descent_importance_gather": (c_int, [_handle, _ids, c_size_t, Depth, Progress, c_void_p, _out, _status]),
    "descent_importance_free": (None, [_handle]),
    "descent_quantize": (c_int, [c_char_p, c_char_p, POINTER(QuantizeOptions), _status]),
    "descent_trial_create": (c_int, [POINTER(TrialOptions), _out, _status]),
    "descent_trial_destroy": (None, [_handle]),
    "descent_trial_bytes": (c_uint64, [_handle]),
    "descent_trial_weights": (c_uint64, [_handle]),
    "descent_trial_run": (_floats, [_handle, c_bool, c_uint32, c_uint64]),
}


class Error(Exception):
    """What the engine, or this module on its behalf, refused: `code` (a Code) and `message`, one line."""

    def __init__(self, code, message):
        super().__init__(f"{message} ({Code(code).name})")
        self.code = Code(code)
        self.message = message


def candidates():
    """Where the library is looked for, in this order. $DESCENT_LIBRARY, where set, is the only place."""
    named = os.environ.get("DESCENT_LIBRARY")
    if named:
        return [named]
    here = pathlib.Path(__file__).resolve().parent
    found = [here / "libdescent.so"]
    if len(here.parents) > 2:
        found.append(here.parents[2] / "build" / "release" / "libdescent.so")  # of the repository this file lies in
    found = [str(path) for path in found if path.exists()]
    return found + [ctypes.util.find_library("descent") or "libdescent.so.0"]


def load():
    failures = []
    for path in candidates():
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            failures.append(str(error))
            continue
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
        return library
    raise ImportError("libdescent not found: build it (cmake --preset release && cmake --build --preset release) or name it "
                      "in DESCENT_LIBRARY; tried: " + "; ".join(failures))


library = load()


def call(name, *arguments):
    """Calls a fallible function with a status of its own behind the arguments; raises Error where it fails."""
    status = Status()
    code = getattr(library, name)(*arguments, ctypes.byref(status))
    if code != Code.OK:
        raise Error(code, status.message.decode("utf-8", "replace"))

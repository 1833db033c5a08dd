// list_gguf.mjs FILE: what @huggingface/gguf reads in a file, as one JSON object: `metadata`, a list of [key, value type,
// element type or null, value]; `tensors`, a list of [name, dimensions, type, place in the file]. Integers wider than a
// double and numbers JSON has no word for come as strings.
import { gguf } from "@huggingface/gguf";

const ARRAY = 9;
const OWN_FIELDS = ["version", "tensor_count", "kv_count"]; // of the file's fixed header, not metadata

function plain(key, value) {
    if (typeof value === "bigint") return value.toString();
    if (typeof value === "number" && !Number.isFinite(value)) return String(value);
    return value;
}

const { typedMetadata, tensorInfos, tensorDataOffset } = await gguf(process.argv[2], {
    allowLocalFile: true,
    typedMetadata: true,
});
const metadata = Object.entries(typedMetadata)
    .filter(([key]) => !OWN_FIELDS.includes(key))
    .map(([key, { value, type, subType }]) => [key, type, type === ARRAY ? subType : null, value]);
const tensors = tensorInfos.map(({ name, shape, dtype, offset }) => [name, shape, dtype, tensorDataOffset + offset]);
console.log(JSON.stringify({ metadata, tensors }, plain));

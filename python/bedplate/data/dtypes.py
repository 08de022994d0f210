"""Names of dtypes: Python's, and those of a shard's schema (docs/formats.md)."""

NUMBERS = {
    "int8": "i8",
    "uint8": "u8",
    "int16": "i16",
    "uint16": "u16",
    "int32": "i32",
    "uint32": "u32",
    "int64": "i64",
    "uint64": "u64",
    "float32": "f32",
    "float64": "f64",
}

COLUMNS = {
    **NUMBERS,
    "float16": "f16",
    "bfloat16": "bf16",
    "bool": "bool",
    "bytes": "bytes",
    "str": "utf8",
}

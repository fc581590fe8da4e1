"""Counter noise in registers: Philox4x32-10, the open uniform, and log E of E = -log1p(-u).

One call of Philox gives four words, which belong to four neighbouring ids. Its counter is
(id div 4, row, step, block); the words of a tile are a line of groups against a column of rows.

Liberties:
1. Operands are broadcast only where they meet. The first round then costs a column or a line and
   not a tile, and half of the second and third too; the words are the same.
2. u = (bits + 1/2) 2**-32, rounded once. The upper 24 bits are exact in float32, and so are the
   lower 8 plus one half, so that their sum is the one rounding. No float64 is touched.
3. A warp of rows that draw nothing leaves out the other rounds: one vote and one branch, PTX. It
   says what the function beside it says, and leaves words that are all ones, which prune best.
4. Both logarithms are one polynomial: x = 2**k (1 + m) with m in [-1/4, 1/2), where log(1 + m) is
   m - m**2 / 2 + ... Of log1p the argument is scaled before 1 is added, so a small u keeps all its
   bits. Neither meets zero, infinity or a subnormal: u lies in [2**-33, 1 - 2**-24].
"""

import struct

import triton
import triton.language as tl

# log(1 + m) / m**2 - 1 / m, from the constant up.
SERIES = (
    *(-0.5, 3.33335280e-1, -2.50001878e-1, 1.99886635e-1),
    *(-1.66416913e-1, 1.44911110e-1, -1.32279143e-1, 1.05529785e-1, -4.54559326e-2),
)
C0, C1, C2, C3, C4, C5, C6, C7, C8 = (tl.constexpr(each) for each in SERIES)
# Rounds in all, and those whose operands are lines or columns for a part.
ROUNDS, SHARED = tl.constexpr(10), tl.constexpr(2)
MULTIPLY_EVEN, MULTIPLY_ODD = tl.constexpr(0xD2511F53), tl.constexpr(0xCD9E8D57)
BUMP_LOW, BUMP_HIGH = tl.constexpr(0x9E3779B9), tl.constexpr(0xBB67AE85)
UNIT = tl.constexpr(2.0**-32)
UNIFORM_MAX = tl.constexpr(1.0 - 2.0**-24)
LN2 = tl.constexpr(0.6931471805599453)
THREE_QUARTERS, FOUR = tl.constexpr(0x3F400000), tl.constexpr(0x40800000)
EXPONENT = tl.constexpr(-0x800000)
HIDDEN_BIT = tl.constexpr(2.0**-23)


@triton.jit
def philox(
    c0: tl.tensor,
    c1: tl.tensor,
    c2: tl.tensor,
    c3: tl.tensor,
    k0: tl.tensor,
    k1: tl.tensor,
    COUNT: tl.constexpr = ROUNDS,
) -> tl.tensor:
    """Return the four words of counters and key, all uint32, of shapes that broadcast.

    COUNT  rounds
    """
    for _ in tl.static_range(COUNT):
        even, odd = c0.to(tl.uint64) * MULTIPLY_EVEN, c2.to(tl.uint64) * MULTIPLY_ODD
        even_high, even_low = (even >> 32).to(tl.uint32), even.to(tl.uint32)
        odd_high, odd_low = (odd >> 32).to(tl.uint32), odd.to(tl.uint32)
        c0, c1 = odd_high ^ c1 ^ k0, odd_low
        c2, c3 = even_high ^ c3 ^ k1, even_low
        k0, k1 = k0 + BUMP_LOW, k1 + BUMP_HIGH
    return c0, c1, c2, c3


def _rest_text() -> str:
    # $0 to $3 words; $4 temperature, $5 to $8 counters, from $9 on keys; see `words_of_tile`.
    lines = [f"mov.b32 ${i}, 0xFFFFFFFF" for i in range(4)]
    lines += ["setp.gt.f32 p, $4, 0f00000000", "vote.sync.any.pred p, p, 0xFFFFFFFF"]
    lines += ["@!p bra.uni NONE"]
    lines += [f"mov.b32 ${i}, ${5 + i}" for i in range(4)]
    for i in range(9, 9 + 2 * (ROUNDS.value - SHARED.value), 2):
        lines += [f"mul.wide.u32 x, $0, {MULTIPLY_EVEN.value:#x}"]
        lines += [f"mul.wide.u32 y, $2, {MULTIPLY_ODD.value:#x}", "mov.b64 {a, h}, y"]
        lines += ["xor.b32 h, h, $1", f"xor.b32 $0, h, ${i}", "mov.b32 $1, a", "mov.b64 {a, h}, x"]
        lines += ["xor.b32 h, h, $3", f"xor.b32 $2, h, ${i + 1}", "mov.b32 $3, a"]
    registers = [".reg .pred p", ".reg .b32 a, h", ".reg .b64 x, y"]
    return "{ " + " ".join(f"{x};" for x in [*registers, *lines]) + " NONE: }"


REST = tl.constexpr(_rest_text())
REST_CONSTRAINTS = tl.constexpr(
    "=&r,=&r,=&r,=&r,f" + ",r" * (4 + 2 * (ROUNDS.value - SHARED.value))
)


@triton.jit
def words_of_tile(
    first: tl.tensor,
    rows: tl.tensor,
    temperature: tl.tensor,
    counts: tl.tensor,
    key: tl.tensor,
    INTERPRETED: tl.constexpr,
) -> tl.tensor:
    """Return the words, each [ROWS, GROUPS] uint32, of the first and the next three ids.

    first [ROWS, GROUPS] int32, multiples of 4; rows [ROWS] int32
    temperature  [ROWS]: a row that draws has one above 0, and words of other rows may be any
    counts, key  step int32 and block int64; two words uint32
    """
    step, block = counts
    k0, k1 = key
    group = first.to(tl.uint32) >> 2
    c1, c2, c3 = rows.to(tl.uint32)[:, None], step.to(tl.uint32), block.to(tl.uint32)
    c0, c1, c2, c3 = philox(group, c1, c2, c3, k0, k1, SHARED)
    for _ in tl.static_range(SHARED):
        k0, k1 = k0 + BUMP_LOW, k1 + BUMP_HIGH
    if INTERPRETED:
        words = philox(c0, c1, c2, c3, k0, k1, ROUNDS - SHARED)
    else:
        keys = (k0, k1)
        for _ in tl.static_range(ROUNDS - SHARED - 1):
            k0, k1 = k0 + BUMP_LOW, k1 + BUMP_HIGH
            keys = keys + (k0, k1)  # type: ignore[assignment]  # noqa: RUF005  (nothing is starred)
        words = tl.inline_asm_elementwise(
            REST,
            REST_CONSTRAINTS,
            (temperature[:, None], c0, c1, c2, c3) + keys,  # noqa: RUF005  (as above)
            dtype=(tl.uint32, tl.uint32, tl.uint32, tl.uint32),
            is_pure=True,
            pack=1,
        )
    return words


@triton.jit
def uniform(bits: tl.tensor) -> tl.tensor:
    """Return (bits + 1/2) 2**-32 of uint32 words, rounded once and kept below 1."""
    upper = (bits & 0xFFFFFF00).to(tl.float32)
    lower = (bits & 0xFF).to(tl.float32) + 0.5
    return tl.minimum((upper + lower) * UNIT, UNIFORM_MAX)


@triton.jit
def _log_one_plus(m: tl.tensor, twos: tl.tensor) -> tl.tensor:
    # log(1 + m) + twos log 2 for m in [-1/4, 1/2); even and odd coefficients in two chains.
    square = m * m
    odd = tl.fma(square, C8, C6)
    even = tl.fma(square, C7, C5)
    odd = tl.fma(odd, square, C4)
    even = tl.fma(even, square, C3)
    odd = tl.fma(odd, square, C2)
    total = tl.fma(even, m, odd)
    total = tl.fma(total, m, C1)
    total = tl.fma(total, m, C0)
    return tl.fma(twos, LN2, tl.fma(total, square, m))


@triton.jit
def exponential(u: tl.tensor) -> tl.tensor:
    """Return E = -log1p(-u) of u in [2**-33, 1 - 2**-24]."""
    shift = ((1.0 - u).to(tl.int32, bitcast=True) - THREE_QUARTERS) & EXPONENT
    scaled = ((-u).to(tl.int32, bitcast=True) - shift).to(tl.float32, bitcast=True)
    one = (-shift + FOUR).to(tl.float32, bitcast=True)
    m = scaled + (one * 0.25 - 1.0)
    return -_log_one_plus(m, shift.to(tl.float32) * HIDDEN_BIT)


@triton.jit
def log_exponential(e: tl.tensor) -> tl.tensor:
    """Return log E of a normal E > 0."""
    bits = e.to(tl.int32, bitcast=True)
    shift = (bits - THREE_QUARTERS) & EXPONENT
    m = (bits - shift).to(tl.float32, bitcast=True) - 1.0
    return _log_one_plus(m, shift.to(tl.float32) * HIDDEN_BIT)


def _float(value: float) -> str:
    # A float32 constant of PTX.
    return "0f" + struct.pack(">f", value).hex()


def _log_text() -> list[str]:
    # _log_one_plus of m and twos, left in v.
    c = [_float(each) for each in SERIES]
    return [
        "mul.rn.f32 q, m, m",
        *(f"fma.rn.f32 o, q, {c[8]}, {c[6]}", f"fma.rn.f32 v, q, {c[7]}, {c[5]}"),
        *(f"fma.rn.f32 o, o, q, {c[4]}", f"fma.rn.f32 v, v, q, {c[3]}"),
        *(f"fma.rn.f32 o, o, q, {c[2]}", "fma.rn.f32 v, v, m, o"),
        *(f"fma.rn.f32 v, v, m, {c[1]}", f"fma.rn.f32 v, v, m, {c[0]}"),
        *("fma.rn.f32 v, v, q, m", f"fma.rn.f32 v, k, {_float(0.6931471805599453)}, v"),
    ]


def log_noise_text(bits: str) -> list[str]:
    """Return PTX that leaves log E of a word in v, with the bits of the functions above.

    It writes the registers a, s of 32 bits and k, m, o, q, u, v of float32.
    """
    three_quarters, exponent = "0x3F400000", "0xFF800000"
    twos = ["cvt.rn.f32.s32 k, s", f"mul.rn.f32 k, k, {_float(2.0**-23)}"]
    return [
        *(f"and.b32 s, {bits}, 0xFFFFFF00", "cvt.rn.f32.u32 u, s"),
        *(f"and.b32 s, {bits}, 0xFF", "cvt.rn.f32.u32 v, s", f"add.rn.f32 v, v, {_float(0.5)}"),
        *("add.rn.f32 u, u, v", f"mul.rn.f32 u, u, {_float(2.0**-32)}"),
        f"min.f32 u, u, {_float(1.0 - 2.0**-24)}",
        *(f"sub.rn.f32 v, {_float(1.0)}, u", "mov.b32 s, v"),
        *(f"sub.s32 s, s, {three_quarters}", f"and.b32 s, s, {exponent}"),
        *("neg.f32 v, u", "mov.b32 a, v", "sub.s32 a, a, s", "mov.b32 m, a"),
        *("sub.s32 a, 0x40800000, s", "mov.b32 v, a"),
        *(f"fma.rn.f32 v, v, {_float(0.25)}, {_float(-1.0)}", "add.rn.f32 m, m, v"),
        *(*twos, *_log_text(), "neg.f32 v, v"),
        *("mov.b32 a, v", f"sub.s32 s, a, {three_quarters}", f"and.b32 s, s, {exponent}"),
        *("sub.s32 a, a, s", "mov.b32 m, a", f"add.rn.f32 m, m, {_float(-1.0)}"),
        *(*twos, *_log_text()),
    ]

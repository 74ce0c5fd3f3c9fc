// Matrix products of the generated kernels: a block of rows of A times a strip of columns of B, summed in registers.
// A strip of B is packed, PRODUCT_DEPTH steps at a time, so that it is read in order whatever its strides are, and stays in the first-level
// cache; a tile of PRODUCT_ROWS rows has its sums in registers meanwhile. Each sum takes at most PRODUCT_DEPTH products before it is added
// to its total: the error grows with that number and with the number of such parts, not with their product.
// Method: Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication (ACM TOMS 34, 2008), without a packed A.
#pragma once
#include "lab_math.h"

#if defined(__AVX512F__)
#define PRODUCT_LANES 16
#define PRODUCT_ROWS 12
#elif defined(__AVX__)
#define PRODUCT_LANES 8
#define PRODUCT_ROWS 6
#else
#define PRODUCT_LANES 4
#define PRODUCT_ROWS 6
#endif
#define PRODUCT_COLUMNS (2 * PRODUCT_LANES)
#define PRODUCT_DEPTH 128
#define PRODUCT_BLOCK 240  // rows that share a packed strip; a multiple of PRODUCT_ROWS

typedef float product_lanes __attribute__((vector_size(4 * PRODUCT_LANES), aligned(4 * PRODUCT_LANES)));

// one tile: sums[r][c] += a[r][d] * panel[d][c]. Products and sums are rounded together where the processor can, as in the libraries.
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((noinline, optimize("fp-contract=fast")))
#else
__attribute__((noinline))
#endif
static void product_tile(const float* const* a, int64_t step, const float* panel, int64_t depth, float* sums) {
#ifdef __clang__
#pragma clang fp contract(fast)
#endif
  product_lanes acc[PRODUCT_ROWS][2];
#pragma GCC unroll 12
  for (int r = 0; r < PRODUCT_ROWS; r++) acc[r][0] = acc[r][1] = product_lanes{};
  for (int64_t d = 0; d < depth; d++) {
    const product_lanes left = *(const product_lanes*)(panel + d * PRODUCT_COLUMNS);
    const product_lanes right = *(const product_lanes*)(panel + d * PRODUCT_COLUMNS + PRODUCT_LANES);
#pragma GCC unroll 12
    for (int r = 0; r < PRODUCT_ROWS; r++) {
      const float x = a[r][d * step];
      acc[r][0] += x * left;
      acc[r][1] += x * right;
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < PRODUCT_ROWS; r++) {
    product_lanes* out = (product_lanes*)(sums + r * PRODUCT_COLUMNS);
    out[0] += acc[r][0];
    out[1] += acc[r][1];
  }
}

// `columns` columns of B over `depth` steps, side by side; what is missing in the last strip is zero
static inline void product_pack(const float* b, int64_t step, int64_t across, int64_t depth, int64_t columns, float* panel) {
  if (step == 1 && columns == PRODUCT_COLUMNS) {  // a transposed copy, read in order
    for (int64_t c = 0; c < PRODUCT_COLUMNS; c++)
      for (int64_t d = 0; d < depth; d++) panel[d * PRODUCT_COLUMNS + c] = b[c * across + d];
    return;
  }
  if (across == 1 && columns == PRODUCT_COLUMNS) {
    for (int64_t d = 0; d < depth; d++) __builtin_memcpy(panel + d * PRODUCT_COLUMNS, b + d * step, 4 * PRODUCT_COLUMNS);
    return;
  }
  for (int64_t d = 0; d < depth; d++)
    for (int64_t c = 0; c < PRODUCT_COLUMNS; c++) panel[d * PRODUCT_COLUMNS + c] = c < columns ? b[d * step + c * across] : 0.0f;
}

// sums[r][c] = sum over d of a[r * down + d * a_step] * b[d * b_step + c * across], for `rows` rows, at most PRODUCT_BLOCK, and one strip of columns
static inline void product_block(const float* a, int64_t down, int64_t a_step, const float* b, int64_t b_step, int64_t across, int64_t depth, int64_t rows,
                                 int64_t columns, float* sums) {
  alignas(64) float panel[PRODUCT_DEPTH * PRODUCT_COLUMNS];
  for (int64_t k = 0; k < PRODUCT_BLOCK * PRODUCT_COLUMNS; k++) sums[k] = 0.0f;
  for (int64_t from = 0; from < depth; from += PRODUCT_DEPTH) {
    const int64_t steps = depth - from < PRODUCT_DEPTH ? depth - from : PRODUCT_DEPTH;
    product_pack(b + from * b_step, b_step, across, steps, columns, panel);
    for (int64_t row = 0; row < rows; row += PRODUCT_ROWS) {
      const float* lines[PRODUCT_ROWS];
      for (int r = 0; r < PRODUCT_ROWS; r++)  // rows that are missing in the last tile: the last one again, whose sums nobody reads
        lines[r] = a + (row + r < rows ? row + r : rows - 1) * down + from * a_step;
      product_tile(lines, a_step, panel, steps, sums + row * PRODUCT_COLUMNS);
    }
  }
}

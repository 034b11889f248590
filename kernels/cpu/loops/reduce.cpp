#include "cpu/loops/fill.hpp"
#include "functional/reduction.hpp"

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {
namespace {

using functional::reduction_combine;
using functional::reduction_prepare;

#if defined(__AVX512F__)
constexpr int register_bytes = 64;
#elif defined(__AVX__)
constexpr int register_bytes = 32;
#else
constexpr int register_bytes = 16;
#endif

/// A SIMD vector. GCC takes the lanes of one that is wider than a register apart where they are
/// compared.
template <class T, int bytes = register_bytes>
struct RegisterOf {
  using type __attribute__((vector_size(bytes))) = T;
};
template <class T>
using Register = typename RegisterOf<T>::type;

/// 64 bytes of elements, whatever the registers: the order of additions is the same at every level.
template <class T>
struct Vector {
  static constexpr int parts = 64 / register_bytes, count = 64 / sizeof(T);
  Register<T> part[parts];
};

template <ReduceOp op>
constexpr bool is_extreme = op == ReduceOp::amax || op == ReduceOp::amin;

/// Combines single values. Which of two is the larger nobody can foretell: an instruction tells,
/// not a branch, once NaN is out of the way.
template <ReduceOp op, class T>
LOCKSTEP_ALWAYS_INLINE void combine_lane(T& total, T other) {
  if constexpr (is_extreme<op>) {
    const T kept = (op == ReduceOp::amax ? total > other : total < other) ? total : other;
    if (__builtin_expect(total == total, true)) total = kept;
  } else {
    reduction_combine<op>(total, other);
  }
}

/// Loads 64 bytes of elements, in partial form.
template <ReduceOp op, class T>
LOCKSTEP_ALWAYS_INLINE void load_vector(Vector<T>& vector, const T* from) {
  for (int k = 0; k < Vector<T>::parts; ++k) {
    __builtin_memcpy(&vector.part[k], from + k * (register_bytes / sizeof(T)), register_bytes);
    reduction_prepare<op>(vector.part[k]);
  }
}

template <ReduceOp op, class T>
LOCKSTEP_ALWAYS_INLINE void combine_vectors(Vector<T>& total, const Vector<T>& other) {
  for (int k = 0; k < Vector<T>::parts; ++k) reduction_combine<op>(total.part[k], other.part[k]);
}

/// Folds the lanes of a register into one value, half by half.
template <ReduceOp op, class T, int bytes = register_bytes>
LOCKSTEP_ALWAYS_INLINE T fold_register(const typename RegisterOf<T, bytes>::type& lanes) {
  if constexpr (bytes == 16) {
    T lane[16 / sizeof(T)];
    __builtin_memcpy(lane, &lanes, bytes);
    for (int width = 8 / sizeof(T); width > 0; width /= 2)
      for (int k = 0; k < width; ++k) combine_lane<op>(lane[k], lane[k + width]);
    return lane[0];
  } else {
    typename RegisterOf<T, bytes / 2>::type half[2];
    __builtin_memcpy(half, &lanes, bytes);
    reduction_combine<op>(half[0], half[1]);
    return fold_register<op, T, bytes / 2>(half[0]);
  }
}

/// Folds the lanes of a vector into one value, half by half.
template <ReduceOp op, class T>
LOCKSTEP_ALWAYS_INLINE T fold_vector(Vector<T>& vector) {
  for (int width = Vector<T>::parts / 2; width > 0; width /= 2)
    for (int k = 0; k < width; ++k) reduction_combine<op>(vector.part[k], vector.part[k + width]);
  return fold_register<op, T>(vector.part[0]);
}

/// Folds a block of at least one element in T.
template <ReduceOp op, class T>
T reduce_block(const T* x, std::int64_t n) {
  constexpr int lanes = Vector<T>::count, unroll = 4;
  std::int64_t i = 0;
  T result;
  if (n >= unroll * lanes) {
    Vector<T> part[unroll], next;
    for (int k = 0; k < unroll; ++k) load_vector<op>(part[k], x + k * lanes);
    for (i = unroll * lanes; i + unroll * lanes <= n; i += unroll * lanes)
      for (int k = 0; k < unroll; ++k) {
        load_vector<op>(next, x + i + k * lanes);
        combine_vectors<op>(part[k], next);
      }
    combine_vectors<op>(part[0], part[1]);
    combine_vectors<op>(part[2], part[3]);
    combine_vectors<op>(part[0], part[2]);
    result = fold_vector<op, T>(part[0]);
  } else if (n >= lanes) {
    Vector<T> part, next;
    load_vector<op>(part, x);
    for (i = lanes; i + lanes <= n; i += lanes) {
      load_vector<op>(next, x + i);
      combine_vectors<op>(part, next);
    }
    result = fold_vector<op, T>(part);
  } else {
    result = x[i++];
    reduction_prepare<op>(result);
  }
  for (; i < n; ++i) {
    T next = x[i];
    reduction_prepare<op>(next);
    combine_lane<op>(result, next);
  }
  return result;
}

/// What a row's elements are folded into.
template <class T>
using Partial = std::conditional_t<std::is_same_v<T, std::int64_t>, std::int64_t, double>;

/// Blocks are folded in T, and their results in double, so that long rows stay accurate.
template <ReduceOp op, class T>
LOCKSTEP_ALWAYS_INLINE void add_row(Partial<T>& total, const T* x, std::int64_t n) {
  constexpr std::int64_t block_elements = 4096;
  for (std::int64_t i = 0; i < n; i += block_elements) {
    const std::int64_t count = n - i < block_elements ? n - i : block_elements;
    combine_lane<op>(total, static_cast<Partial<T>>(reduce_block<op>(x + i, count)));
  }
}

template <ReduceOp op, class T>
void reduce_rows(void* partials, const void* x, std::int64_t row_stride, std::int64_t rows,
                 std::int64_t columns) {
  auto* const totals = static_cast<Partial<T>*>(partials);
  const T* const from = static_cast<const T*>(x);
  for (std::int64_t r = 0; r < rows; ++r) add_row<op>(totals[r], from + r * row_stride, columns);
}

/// Combines a value of each of four rows with that of `total`; V is T or a vector of them.
template <ReduceOp op, class V, class T>
LOCKSTEP_ALWAYS_INLINE void combine_four(T* total, const T* from, std::int64_t row_stride) {
  V sum, value[4];
  __builtin_memcpy(&sum, total, sizeof(V));
  for (int k = 0; k < 4; ++k) {
    __builtin_memcpy(&value[k], from + k * row_stride, sizeof(V));
    reduction_prepare<op>(value[k]);
  }
  reduction_combine<op>(value[0], value[1]);
  reduction_combine<op>(value[2], value[3]);
  reduction_combine<op>(value[0], value[2]);
  reduction_combine<op>(sum, value[0]);
  __builtin_memcpy(total, &sum, sizeof(V));
}

template <ReduceOp op, class V, class T>
LOCKSTEP_ALWAYS_INLINE void combine_one(T* total, const T* from) {
  V sum, value;
  __builtin_memcpy(&sum, total, sizeof(V));
  __builtin_memcpy(&value, from, sizeof(V));
  reduction_prepare<op>(value);
  reduction_combine<op>(sum, value);
  __builtin_memcpy(total, &sum, sizeof(V));
}

/// Four rows at a time are folded before they meet the partials.
template <ReduceOp op, class T>
void reduce_columns(void* partial, const void* x, std::int64_t row_stride, std::int64_t rows,
                    std::int64_t columns) {
  constexpr int bytes = is_extreme<op> ? register_bytes : 64, lanes = bytes / sizeof(T);
  using Lanes = typename RegisterOf<T, bytes>::type;
  T* const total = static_cast<T*>(partial);
  const T* from = static_cast<const T*>(x);
  std::int64_t r = 0;
  for (; r + 4 <= rows; r += 4, from += 4 * row_stride) {
    std::int64_t c = 0;
    for (; c + lanes <= columns; c += lanes)
      combine_four<op, Lanes>(total + c, from + c, row_stride);
    for (; c < columns; ++c) combine_four<op, T>(total + c, from + c, row_stride);
  }
  for (; r < rows; ++r, from += row_stride) {
    std::int64_t c = 0;
    for (; c + lanes <= columns; c += lanes) combine_one<op, Lanes>(total + c, from + c);
    for (; c < columns; ++c) combine_one<op, T>(total + c, from + c);
  }
}

template <ReduceOp op, class T>
void add_op(Loops& loops) {
  loops.reduce_rows.at(accumulate_tag<T>, op) = reduce_rows<op, T>;
  loops.reduce_columns.at(accumulate_tag<T>, op) = reduce_columns<op, T>;
}

template <class T>
void add_type(Loops& loops) {
#define LOCKSTEP_REDUCE_OP(name, integers, ...) \
  if constexpr (integers || !std::is_same_v<T, std::int64_t>) add_op<ReduceOp::name, T>(loops);
#include "functional/ops.def"
}

}  // namespace

void fill_reduce(Loops& loops) {
  add_type<float>(loops);
  add_type<double>(loops);
  add_type<std::int64_t>(loops);
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA

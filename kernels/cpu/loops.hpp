#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "cpu/channel_loops.hpp"
#include "cpu/few_rows_loops.hpp"
#include "cpu/line_loops.hpp"
#include "cpu/pool_loops.hpp"
#include "cpu/resize_loops.hpp"
#include "cpu/row_loops.hpp"
#include "functional/op_list.hpp"
#include "lockstep/core/dtype.hpp"
#include "lockstep/core/philox.hpp"

/// @file
/// The vectorised inner loops of the CPU engine, one table per instruction set. All run over
/// contiguous arrays of an accumulation type; what has another dtype or stride is first brought
/// into such an array, a tile (see tiles.hpp).

namespace lockstep::cpu_kernels {

/// The types in which elementwise maths runs.
enum class Accumulate : std::uint8_t { f32, f64, i64 };

/// The accumulation type of a dtype.
constexpr Accumulate accumulate_of(DType dtype) {
  if (dtype == DType::f64) return Accumulate::f64;
  return is_floating(dtype) ? Accumulate::f32 : Accumulate::i64;
}
/// Bytes of one element of an accumulation type.
constexpr std::size_t size_of(Accumulate type) { return type == Accumulate::f32 ? 4 : 8; }
/// True if arrays of the dtype are arrays of its accumulation type.
constexpr bool is_accumulate_type(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::i64;
}

using LoadLoop = void (*)(void* tile, const void* from, std::int64_t stride, std::int64_t n);
/// Rows of elements in memory; strides are in elements.
struct SourceRows {
  const void* from;
  std::int64_t row_stride, stride;
  std::int64_t rows, columns;
};
/// Loads row after row, as LoadLoop does one.
using LoadRowsLoop = void (*)(void* tile, const SourceRows& source);
using StoreLoop = void (*)(void* to, std::int64_t stride, const void* tile, std::int64_t n);
using UnaryLoop = void (*)(void* y, const void* x, std::int64_t n, const OpConstants& constants);
/// `saved` is x or y, whichever ops.def names.
using UnaryBackwardLoop = void (*)(void* dx, const void* dy, const void* saved, std::int64_t n,
                                   const OpConstants& constants);
using BinaryLoop = void (*)(void* out, const void* a, const void* b, std::int64_t n,
                            const OpConstants& constants);
/// Either gradient may be null.
using BinaryBackwardLoop = void (*)(void* da, void* db, const void* dout, const void* a,
                                    const void* b, std::int64_t n, const OpConstants& constants);
using CompareLoop = void (*)(void* out, const void* a, const void* b, std::int64_t n);
using WhereLoop = void (*)(void* out, const void* condition, const void* a, const void* b,
                           std::int64_t n);
/// Combines the `columns` elements of each of `rows` rows, `row_stride` elements apart, into a
/// partial of the row (double for the floating types, else int64).
using ReduceRowsLoop = void (*)(void* partials, const void* x, std::int64_t row_stride,
                                std::int64_t rows, std::int64_t columns);
/// Combines `rows` rows, `row_stride` elements apart, into `columns` partials of the accumulation
/// type, each row's element c into partial c.
using ReduceColumnsLoop = void (*)(void* partial, const void* x, std::int64_t row_stride,
                                   std::int64_t rows, std::int64_t columns);

/// The fingerprint of elements [begin, end) of an array, by their places in it.
using FingerprintLoop = std::uint64_t (*)(const void* array, std::int64_t begin, std::int64_t end);

/// Parameters of a random op and the place of its first element in the draw.
struct RandomArguments {
  double a, b;  ///< low and high; mean and deviation; p and 1 / (1 - p)
  PhiloxState state;
  std::int64_t first;
};
using DrawLoop = void (*)(void* out, std::int64_t n, const RandomArguments& arguments);
using DropoutLoop = void (*)(void* out, const void* x, std::int64_t n,
                             const RandomArguments& arguments);

inline constexpr std::size_t dtypes = 8, accumulate_types = 3;
inline constexpr std::size_t unary_count = sizeof(unary_ops) / sizeof(OpTraits);
inline constexpr std::size_t binary_count = sizeof(binary_ops) / sizeof(OpTraits);
inline constexpr std::size_t compare_count = sizeof(compare_ops) / sizeof(OpDescriptor);
inline constexpr std::size_t reduce_count = sizeof(reduce_ops) / sizeof(ReduceTraits);

/// A table by accumulation type and op; null where the pair is not offered.
template <class Loop, std::size_t count>
struct LoopTable {
  Loop loop[accumulate_types][count] = {};

  template <class Index>
  Loop operator()(Accumulate type, Index index) const {
    return loop[static_cast<std::size_t>(type)][static_cast<std::size_t>(index)];
  }
  template <class Index>
  Loop& at(Accumulate type, Index index) {
    return loop[static_cast<std::size_t>(type)][static_cast<std::size_t>(index)];
  }
};

/// All loops of one instruction set.
struct Loops {
  LoadLoop load[dtypes] = {};  ///< memory of a dtype to a tile of its accumulation type
  LoadRowsLoop load_rows[dtypes] = {};
  LoopTable<StoreLoop, dtypes> store;   ///< a tile to memory of a dtype
  WhereLoop where[4] = {};              ///< by log2 of the element's bytes
  FingerprintLoop fingerprint[4] = {};  ///< likewise
  LoopTable<UnaryLoop, unary_count> unary;
  LoopTable<UnaryBackwardLoop, unary_count> unary_backward;
  LoopTable<BinaryLoop, binary_count> binary;
  LoopTable<BinaryBackwardLoop, binary_count> binary_backward;
  LoopTable<CompareLoop, compare_count> compare;
  CompareLoop compare_bytes[compare_count] = {};  ///< of bool and u8, as they lie in memory
  LoopTable<ReduceRowsLoop, reduce_count> reduce_rows;
  LoopTable<ReduceColumnsLoop, reduce_count> reduce_columns;
  LoopTable<DrawLoop, 1> uniform, normal;
  LoopTable<DropoutLoop, 1> dropout;
  RowLoops rows;
  ChannelLoops channels[RowLoops::dtypes] = {};  ///< by floating dtype; a column is a channel
  ChannelLoops planes[RowLoops::dtypes] = {};    ///< the same where a block is of one channel
  PoolLoops pool[RowLoops::dtypes] = {};         ///< by floating dtype
  FewRowsLoops few_rows;
  LineLoops lines;
  ResizeLoops<float> resize_f32;
  ResizeLoops<double> resize_f64;
};

/// The loops of the best instruction set that this machine has, or of the one that the environment
/// variable LOCKSTEP_CPU_ISA names. @throws InvalidArgument where that is unknown or missing.
const Loops& loops();
/// The name of that instruction set: "baseline", "avx2" or "avx512".
const char* isa_name();
/// The same, or the one that will be, without its being in use from now on.
const char* best_isa();
/// The best of this build that the machine has, whatever is used of it.
const char* machine_isa();
/// Has the instruction set be none above one of `compiled_isas`, whatever the machine has and
/// LOCKSTEP_CPU_ISA says.
/// @return false where a better one is in use already, and stays.
bool limit_isa(std::string_view name);
/// The names of all instruction sets of this build, best first.
std::vector<const char*> compiled_isas();

}  // namespace lockstep::cpu_kernels

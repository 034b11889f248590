#pragma once

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <dnnl.hpp>

#include "backend/onednn/pair_packing.hpp"
#include "cpu/scratch.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// What the oneDNN families share: the engine, descriptors, and primitives ready to run. Written
/// for versions 2.6 and 3.x, whose descriptors are built differently.

namespace lockstep::backend::dnn {

/// The CPU engine, and the calling thread's stream on it.
const dnnl::engine& engine();
const dnnl::stream& stream();

/// The oneDNN name of a dtype. @throws Unsupported for those it lacks.
dnnl::memory::data_type data_type(DType dtype);
/// True for dtypes in which oneDNN trains.
inline bool trains(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16; }

/// Dims of oneDNN.
inline dnnl::memory::dims dims(const Dims& from) { return {from.begin(), from.end()}; }
/// Describes a view as it lies in memory.
dnnl::memory::desc describe(const ArrayView& view);
/// Describes a view's shape, and leaves the memory order to the primitive.
dnnl::memory::desc describe_any(const ArrayView& view);

/// Matrices [batch, rows, columns] with rows and columns exchanged.
inline ArrayView transposed(ArrayView view) {
  std::swap(view.shape[1], view.shape[2]);
  std::swap(view.strides[1], view.strides[2]);
  return view;
}

/// False for strides that oneDNN cannot describe: walking outwards, each stride has to span all
/// that lies inside it. Rows sliced with a step leave it shorter than that.
bool describable(const ArrayView& view);

/// Gives an image [N, C, ...] the plain strides of its memory order: contiguous or channels-last.
/// @returns false for any other order.
bool normalise_image(ArrayView& view);
/// True if neighbours in memory are neighbours along dimension 1.
bool is_channels_last(const ArrayView& view);

/// Attributes of every primitive here: scratch memory comes from the caller.
dnnl::primitive_attr attributes();

/// A primitive descriptor from the arguments of its operation, in their common order.
template <class Primitive, class... Args>
typename Primitive::primitive_desc make(const dnnl::primitive_attr& attr, const Args&... args) {
#if DNNL_VERSION_MAJOR >= 3
  return typename Primitive::primitive_desc(engine(), args..., attr);
#else
  return typename Primitive::primitive_desc(typename Primitive::desc(args...), attr, engine());
#endif
}
/// As `make`, for a backward operation, which needs the forward one's descriptor.
template <class Primitive, class Hint, class... Args>
typename Primitive::primitive_desc make_backward(const dnnl::primitive_attr& attr,
                                                 const Hint& forward, const Args&... args) {
#if DNNL_VERSION_MAJOR >= 3
  return typename Primitive::primitive_desc(engine(), args..., forward, attr);
#else
  return typename Primitive::primitive_desc(typename Primitive::desc(args...), attr, engine(),
                                            forward);
#endif
}

/// True if the processor multiplies bf16, and oneDNN makes use of it.
bool has_bf16_products();
/// True if oneDNN has AMX tiles to compute with here.
bool has_amx();
/// True if the descriptor's implementation computes with AMX tiles.
template <class Desc>
bool uses_amx(const Desc& desc) {
  return std::strstr(desc.impl_info_str(), "amx") != nullptr;
}
/// Goes on to the first implementation without AMX tiles. @returns false if there is none.
template <class Desc>
bool avoid_amx(Desc& desc) {
  while (uses_amx(desc))
    if (!desc.next_impl()) return false;
  return true;
}

/// Called in the handler of an error while a primitive was made. Returns where oneDNN refuses the
/// problem, which the `cpu` backend has to run then, and says so once where that was not to be
/// expected. @param op, operands the problem. @throws OnednnError for every other failure.
void on_refusal(const dnnl::error& error, std::string_view op,
                std::initializer_list<const ArrayView*> operands);

/// What `make()` makes, or an empty value where oneDNN refuses the problem.
template <class Make>
auto make_or_empty(std::string_view op, std::initializer_list<const ArrayView*> operands,
                   Make&& make) -> decltype(make()) {
  try {
    return make();
  } catch (const dnnl::error& error) {
    on_refusal(error, op, operands);
    return {};
  }
}

/// A primitive with its memory objects, which are pointed at the data of each call.
class Runnable {
 public:
  Runnable() = default;
  /// @param scratchpad what the primitive needs beside its operands.
  Runnable(const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad);

  /// Adds an operand, DNNL_ARG_...; its place in the order of adding is its place in `run`.
  void add(int argument, const dnnl::memory::desc& desc);
  /// Runs with the operands' data. @throws OnednnError.
  void run(std::initializer_list<void*> data);
  explicit operator bool() const { return static_cast<bool>(primitive_); }

 private:
  dnnl::primitive primitive_;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
  std::size_t scratch_bytes_ = 0;
};

/// An operand whose memory order the primitive may choose: it is brought into that order, or back,
/// through the calling thread's working memory.
class Operand {
 public:
  Operand() = default;
  /// @param user its order in the caller's memory. @param chosen the primitive's.
  /// @param slot of the working memory that it may use.
  Operand(const dnnl::memory::desc& user, const dnnl::memory::desc& chosen, int slot);

  /// The operand in the primitive's order: the caller's own memory where the orders agree.
  void* bring_in(void* user);
  /// Where the primitive shall write.
  void* place(void* user) const;
  /// Brings what the primitive wrote at `place` into the caller's memory.
  void bring_out(void* user);

 private:
  Runnable in_, out_;
  std::optional<PairPacking> packing_;  // in place of in_
  std::size_t bytes_ = 0;
  int slot_ = 0;
};

/// Working memory of the calling thread, for operands in a primitive's own memory order.
/// @param slot 0 to 3: operands of one call that live at the same time.
void* working_memory(int slot, std::size_t bytes);

}  // namespace lockstep::backend::dnn

#pragma once

#include <dnnl.hpp>

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

/// A primitive with its memory objects, which are pointed at the data of each call.
class Runnable {
 public:
  Runnable() = default;
  /// @param scratch_bytes what the primitive needs beside its operands.
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

/// Working memory of the calling thread, for operands in a primitive's own memory order.
/// @param slot 0 to 3: operands of one call that live at the same time.
void* working_memory(int slot, std::size_t bytes);

}  // namespace lockstep::backend::dnn

#include "backend/onednn/library.hpp"

#include <array>
#include <cstdlib>
#include <sstream>

#include "cpu/library_isa.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/thread_kept.hpp"
#include "lockstep/observe/log.hpp"

namespace lockstep::backend::dnn {
namespace {

/// `make()`, with errors of the library as lockstep's own.
template <class Make>
auto checked(std::string_view call, Make&& make) {
  try {
    return make();
  } catch (const dnnl::error& error) {
    throw OnednnError(call, error.status, error.what());
  }
}

dnnl::cpu_isa as_cpu_isa(cpu_kernels::LibraryIsa isa) {
  using cpu_kernels::LibraryIsa;
  switch (isa) {
    case LibraryIsa::sse41: return dnnl::cpu_isa::sse41;
    case LibraryIsa::avx: return dnnl::cpu_isa::avx;
    case LibraryIsa::avx2: return dnnl::cpu_isa::avx2;
    case LibraryIsa::avx512_core: return dnnl::cpu_isa::avx512_core;
  }
  return dnnl::cpu_isa::all;
}

/// Keeps to the instruction set that all ranks have, where a Session has found others. Once oneDNN
/// is in use, or was asked what it uses, it refuses.
void limit_instructions() {
  static const bool is_done [[maybe_unused]] = [] {
    if (const auto limit = cpu_kernels::begin_library()) dnnl::set_max_cpu_isa(as_cpu_isa(*limit));
    return true;
  }();
}

}  // namespace

const dnnl::engine& engine() {
  // Never destroyed: destructors of static objects may compute.
  static const dnnl::engine& instance = *new dnnl::engine(checked("dnnl_engine_create", [] {
    limit_instructions();
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }));
  return instance;
}

const dnnl::stream& stream() {
  static thread_local detail::KeptByThread<dnnl::stream> instance;
  return instance.get(
      [] { return checked("dnnl_stream_create", [] { return dnnl::stream(engine()); }); });
}

dnnl::memory::data_type data_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return dnnl::memory::data_type::f32;
    case DType::bf16: return dnnl::memory::data_type::bf16;
    default: LOCKSTEP_THROW(Unsupported, "oneDNN: no training in dtype ", dtype);
  }
}

dnnl::memory::desc describe(const ArrayView& view) {
  return {dims(view.shape), data_type(view.dtype), dims(view.strides)};
}

dnnl::memory::desc describe_any(const ArrayView& view) {
  return {dims(view.shape), data_type(view.dtype), dnnl::memory::format_tag::any};
}

bool describable(const ArrayView& view) {
  const auto spans = [&](int outer, int inner) {
    return view.strides[outer] >= view.strides[inner] * view.shape[inner];
  };
  for (int i = 0; i < view.rank(); ++i) {
    if (view.strides[i] < 1) return false;
    for (int j = 0; j < i; ++j)
      if (!spans(i, j) && !spans(j, i)) return false;
  }
  return true;
}

bool normalise_image(ArrayView& view) {
  if (view.is_contiguous()) {
    view.strides = contiguous_strides(view.shape);
    return true;
  }
  if (view.rank() != 4) return false;
  const Strides last = channels_last_strides(view.shape);
  for (int d = 0; d < 4; ++d)
    if (view.shape[d] > 1 && view.strides[d] != last[d]) return false;
  view.strides = last;
  return true;
}

bool is_channels_last(const ArrayView& view) {
  return view.rank() == 4 && view.shape[1] > 1 && view.strides[1] == 1;
}

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

namespace {

bool has_level(dnnl::cpu_isa level) {
  // Levels are sets of instructions, a bit each.
  static const auto effective = [] {
    limit_instructions();
    return static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  }();
  return (effective & static_cast<unsigned>(level)) == static_cast<unsigned>(level);
}

}  // namespace

bool has_bf16_products() { return has_level(dnnl::cpu_isa::avx512_core_bf16); }
bool has_amx() { return has_level(dnnl::cpu_isa::avx512_core_amx); }

void on_refusal(const dnnl::error& error, std::string_view op,
                std::initializer_list<const ArrayView*> operands) {
  if (error.status == dnnl_unimplemented) return;
  lockstep::detail::TextStream problem;
  problem << op << " of";
  for (const ArrayView* view : operands)
    if (*view)
      problem << ' ' << view->dtype << ' ' << view->shape << " (strides " << view->strides << ')';
  if (error.status != dnnl_invalid_arguments)
    throw OnednnError(problem.str(), error.status, error.what());
  LOCKSTEP_LOG(warning, "oneDNN refuses a ", problem.str(), ": ", error.what(),
               "; the cpu backend runs it");
}

void* working_memory(int slot, std::size_t bytes) {
  static thread_local std::array<cpu_kernels::Scratch, 5> slots;
  return slots[static_cast<std::size_t>(slot)].get<char>(bytes);
}

Runnable::Runnable(const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad)
    : primitive_(primitive), scratch_bytes_(scratchpad.get_size()) {
  if (scratch_bytes_) add(DNNL_ARG_SCRATCHPAD, scratchpad);
}

void Runnable::add(int argument, const dnnl::memory::desc& desc) {
  memories_.push_back(dnnl::memory(desc, engine(), DNNL_MEMORY_NONE));
  arguments_.push_back({argument, memories_.back().get()});
}

void Runnable::run(std::initializer_list<void*> data) {
  // The C interface: the C++ one builds a map of arguments in every call.
  std::size_t next = 0;
  const auto point = [&](void* to) {
    const auto status = dnnl_memory_set_data_handle(arguments_[next++].memory, to);
    LOCKSTEP_CHECK(status == dnnl_success, InvalidArgument, "oneDNN: bad memory handle");
  };
  constexpr int scratch_slot = 4;
  if (scratch_bytes_) point(working_memory(scratch_slot, scratch_bytes_));
  for (void* each : data) point(each);
  const auto status = dnnl_primitive_execute(
      primitive_.get(), stream().get(), static_cast<int>(arguments_.size()), arguments_.data());
  if (status != dnnl_success)
    throw OnednnError("dnnl_primitive_execute", status, "the primitive did not run");
}

Operand::Operand(const dnnl::memory::desc& user, const dnnl::memory::desc& chosen, int slot)
    : slot_(slot) {
  if (user == chosen) return;
  bytes_ = chosen.get_size();
  const auto reordering = [](const dnnl::memory::desc& from, const dnnl::memory::desc& to) {
    const dnnl::reorder::primitive_desc desc(engine(), from, engine(), to, attributes());
    Runnable runnable(dnnl::reorder(desc), desc.scratchpad_desc());
    runnable.add(DNNL_ARG_FROM, from);
    runnable.add(DNNL_ARG_TO, to);
    return runnable;
  };
  packing_ = PairPacking::between(user, chosen);
  in_ = reordering(user, chosen);
  out_ = reordering(chosen, user);
}

void* Operand::bring_in(void* user) {
  void* const target = place(user);
  if (packing_)
    (*packing_)(user, target);
  else if (bytes_)
    in_.run({user, target});
  return target;
}

void* Operand::place(void* user) const { return bytes_ ? working_memory(slot_, bytes_) : user; }

void Operand::bring_out(void* user) {
  if (bytes_) out_.run({place(user), user});
}

}  // namespace lockstep::backend::dnn

#include "lockstep/autograd/op_call.hpp"

#include "autograd/ops/composed.hpp"
#include "lockstep/autograd/cast_cache.hpp"
#include "lockstep/autograd/recomputation.hpp"
#include "tensor/read_note.hpp"

namespace lockstep::autograd {
namespace detail {
namespace {

/// True for the dtypes between which mixed precision converts.
bool is_convertible(DType dtype) { return is_floating(dtype) && dtype != DType::f64; }

/// The dtype in which an op runs; f64 if its operands stay as they are.
DType autocast_target(const OpDescriptor& op, std::span<const Tensor* const> operands) {
  const auto device = static_cast<std::size_t>(operands[0]->device().type);
  const DType lower = thread_modes.autocast_dtype[device];
  if (lower == DType::f32 || op.autocast == AutocastPolicy::follow) return DType::f64;
  if (op.autocast == AutocastPolicy::f32) return DType::f32;
  if (op.autocast == AutocastPolicy::lower_precision) return lower;
  DType widest = operands[0]->dtype();
  for (const Tensor* operand : operands)
    if (operand->defined() && is_convertible(operand->dtype()) && operand->dtype() != widest)
      widest = DType::f32;  // of f32, bf16 and f16, any two that differ fit only into f32
  return widest;
}

/// Replaces operands by what `convert` makes of them where they are not in the op's dtype.
template <class Convert>
void replace_operands(const OpDescriptor& op, std::span<const Tensor*> operands,
                      std::span<Tensor> casts, const Convert& convert) {
  if (!operands[0]->defined()) return;
  const DType target = autocast_target(op, operands);
  if (target == DType::f64) return;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Tensor& operand = *operands[i];
    if (!operand.defined() || !is_convertible(operand.dtype()) || operand.dtype() == target)
      continue;
    casts[i] = convert(operand, target);
    operands[i] = &casts[i];
  }
}

}  // namespace

void throw_unsupported(const OpDescriptor& op, const Tensor& operand) {
  const bool numeric = op.dtypes == DTypeRule::numeric;
  LOCKSTEP_THROW(Unsupported, op.name, ": dtype ", operand.dtype(), " is not offered on device ",
                 operand.device(), "; it needs a ", numeric ? "numeric" : "floating",
                 " dtype, convert with to(dtype)");
}

void throw_unlike(const OpDescriptor& op, const Tensor& first, const Tensor& other) {
  if (first.device() != other.device())
    LOCKSTEP_THROW(InvalidArgument, op.name, ": operands are on ", first.device(), " and ",
                   other.device(), "; move one with to(device)");
  LOCKSTEP_THROW(InvalidArgument, op.name, ": operands have dtypes ", first.dtype(), " and ",
                 other.dtype(), "; convert one with to(dtype)");
}

void note_operands(const OpDescriptor& op, std::span<const Tensor* const> operands) {
  for (const Tensor* const operand : operands)
    if (operand->defined()) thread_modes.recomputation->note_use(op.name, *operand);
}

void note_reads(const OpDescriptor& op, std::span<const Tensor* const> operands) {
  for (const Tensor* const operand : operands) note_read(*operand, op.name);
}

void cast_operands(const OpDescriptor& op, std::span<const Tensor*> operands,
                   std::span<Tensor> casts) {
  replace_operands(op, operands, casts, cast_operand);
}

void convert_operands(const OpDescriptor& op, std::span<const Tensor*> operands,
                      std::span<Tensor> casts) {
  replace_operands(op, operands, casts,
                   [](const Tensor& operand, DType target) { return operand.to(target); });
}

}  // namespace detail

OpListCall::OpListCall(const OpDescriptor& op, std::span<const Tensor> operands)
    : op_(op), range_(op.name), given_(operands) {
  LOCKSTEP_CHECK(!operands.empty(), InvalidArgument, op.name, ": the list of tensors is empty");
  for (const Tensor& operand : operands) operands_.push_back(&operand);
  recording_ = recording_any(operands);
  if (thread_modes.recomputation && recording_) detail::note_operands(op, operands_);
  if (thread_modes.noting_reads) detail::note_reads(op, operands_);
  if (thread_modes.autocast) {
    casts_.resize(operands.size());
    detail::cast_operands(op, operands_, casts_);
  }
  detail::check_operands(op, operands_);
}

}  // namespace lockstep::autograd

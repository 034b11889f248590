#include "lockstep/parallel/collectives.hpp"

#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/autograd/op_call.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/place.hpp"
#include "lockstep/parallel/tensor_work.hpp"
#include "lockstep/tensor/factories.hpp"
#include "parallel/checks.hpp"
#include "parallel/gradient_unit.hpp"

namespace lockstep::parallel {
namespace {

using autograd::InputGradients;
using autograd::OpCall;

constexpr OpDescriptor all_reduce_op{.name = "all_reduce", .dtypes = DTypeRule::numeric};
constexpr OpDescriptor all_gather_op{.name = "all_gather", .dtypes = DTypeRule::any};
constexpr OpDescriptor reduce_scatter_op{.name = "reduce_scatter", .dtypes = DTypeRule::numeric};
constexpr OpDescriptor broadcast_op{.name = "broadcast", .dtypes = DTypeRule::any};
constexpr OpDescriptor copy_to_group_op{.name = "copy_to_group", .dtypes = DTypeRule::any};
constexpr OpDescriptor shard_op{.name = "shard", .dtypes = DTypeRule::any};

void check_operand(const char* op, const Tensor& x, const CommunicatorPtr& group) {
  LOCKSTEP_CHECK(group, InvalidArgument, op,
                 ": no group; a rank that is in none of a split's groups must not call it");
  check_on_device_of(op, x, *group);
}

/// The factor of this rank's elements in a reduction. @throws Unsupported for one without gradient.
double factor_of(const char* op, comm::ReduceOp reduction, int ranks) {
  switch (reduction.kind) {
    case comm::ReduceKind::sum: return 1.0;
    case comm::ReduceKind::average: return 1.0 / ranks;
    case comm::ReduceKind::scaled_sum: return reduction.factor;
    default:
      LOCKSTEP_THROW(Unsupported, op, ": no gradient of ", reduction.kind,
                     "; use sum, average or scaled_sum, or a tensor that requires none");
  }
}

Tensor scaled(const Tensor& x, double factor) { return factor == 1.0 ? x : mul(x, factor); }

/// Runs `collective`, which works along dimension 0, along another one.
template <class Collective>
Tensor along(int dim, const Tensor& x, Collective collective) {
  if (dim == 0) return collective(x);
  return collective(x.transpose(0, dim)).transpose(0, dim).contiguous();
}

std::string name_along(std::string_view op, int dim) { return detail::concat(op, " along ", dim); }

/// What tells a collective from the others of its group, compared between the ranks: backward runs
/// them in the order in which each rank has recorded them, and equal shapes alone would let one
/// rank's first pair with another's second. Only what communicates in backward has a number.
std::string label_of(std::string_view op, const Tensor& x, Communicator& group,
                     bool has_collective_gradient) {
  std::string label(op);
  if (has_collective_gradient) label += detail::concat(" #", group.take_number());
  label += detail::concat(" of ", x.shape());
  if (!has_collective_gradient) label += " (no gradient exchange)";
  const std::string path = autograd::current_path();
  return path.empty() ? label : detail::concat(label, " in ", path);
}

Tensor gathered(const Tensor& x, Communicator& group, int dim, const std::string& label) {
  const NoGradGuard no_recording;
  return along(dim, x,
               [&](const Tensor& rows) { return all_gather_async(rows, group, label).wait(); });
}

Tensor scattered(const Tensor& x, Communicator& group, int dim, comm::ReduceOp reduction,
                 const std::string& label) {
  const NoGradGuard no_recording;
  return along(dim, x, [&](const Tensor& rows) {
    return reduce_scatter_async(rows, group, reduction, label).wait();
  });
}

Tensor reduced(const Tensor& x, Communicator& group, comm::ReduceOp reduction,
               const std::string& label) {
  const NoGradGuard no_recording;
  return all_reduce_async(x, group, reduction, label).wait();
}

std::string gradient_of(const std::string& label) { return "gradient of " + label; }

// The same of gradients.

Tensor gathered_gradient(const Tensor& dy, Communicator& group, int dim, const std::string& label) {
  return exchanged_gradient(
      dy, [&](const Tensor& own) { return gathered(own, group, dim, gradient_of(label)); });
}

Tensor scattered_gradient(const Tensor& dy, Communicator& group, int dim,
                          const std::string& label) {
  return exchanged_gradient(dy, [&](const Tensor& own) {
    return scattered(own, group, dim, comm::ReduceOp::sum(), gradient_of(label));
  });
}

Tensor reduced_gradient(const Tensor& dy, Communicator& group, const std::string& label) {
  return exchanged_gradient(dy, [&](const Tensor& own) {
    return reduced(own, group, comm::ReduceOp::sum(), gradient_of(label));
  });
}

Tensor own_part(const Tensor& x, const Communicator& group, int dim) {
  const std::int64_t extent = x.size(dim) / group.size();
  return x.slice(dim, group.rank() * extent, (group.rank() + 1) * extent);
}

}  // namespace

Tensor all_reduce(const Tensor& x, const CommunicatorPtr& group, ResultGradient gradient,
                  comm::ReduceOp reduction) {
  check_operand("all_reduce", x, group);
  const OpCall call(all_reduce_op, x);
  const bool partial = gradient == ResultGradient::partial;
  const std::string label = label_of("all_reduce", x, *group, call.recording() && partial);
  if (!call.recording()) return reduced(x, *group, reduction, label);
  const double factor = factor_of("all_reduce", reduction, group->size());
  return call.record(reduced(x, *group, reduction, label),
                     [group, partial, factor, label](const Tensor& dy, InputGradients& dx) {
                       const Tensor sum = partial ? reduced_gradient(dy, *group, label) : dy;
                       dx.set(0, scaled(sum, factor));
                     });
}

Tensor all_gather(const Tensor& x, const CommunicatorPtr& group, std::int64_t dim,
                  ResultGradient gradient) {
  check_operand("all_gather", x, group);
  const OpCall call(all_gather_op, x);
  const int along = check_dimension("all_gather", x, dim);
  const bool partial = gradient == ResultGradient::partial;
  const std::string label =
      label_of(name_along("all_gather", along), x, *group, call.recording() && partial);
  const Tensor y = gathered(x, *group, along, label);
  if (!call.recording()) return y;
  return call.record(y, [group, along, partial, label](const Tensor& dy, InputGradients& dx) {
    dx.set(0, partial ? scattered_gradient(dy, *group, along, label) : own_part(dy, *group, along));
  });
}

Tensor reduce_scatter(const Tensor& x, const CommunicatorPtr& group, std::int64_t dim,
                      comm::ReduceOp reduction) {
  check_operand("reduce_scatter", x, group);
  const OpCall call(reduce_scatter_op, x);
  const int along = check_divides("reduce_scatter", x, dim, *group);
  const std::string label =
      label_of(name_along("reduce_scatter", along), x, *group, call.recording());
  if (!call.recording()) return scattered(x, *group, along, reduction, label);
  const double factor = factor_of("reduce_scatter", reduction, group->size());
  return call.record(scattered(x, *group, along, reduction, label),
                     [group, along, factor, label](const Tensor& dy, InputGradients& dx) {
                       dx.set(0, scaled(gathered_gradient(dy, *group, along, label), factor));
                     });
}

Tensor broadcast(const Tensor& x, const CommunicatorPtr& group, int root, ResultGradient gradient) {
  check_operand("broadcast", x, group);
  const OpCall call(broadcast_op, x);
  const bool partial = gradient == ResultGradient::partial;
  const std::string label = label_of("broadcast", x, *group, call.recording() && partial);
  Tensor y;
  {
    const NoGradGuard no_recording;
    y = broadcast_async(x, *group, root, label).wait();
  }
  if (!call.recording()) return y;
  return call.record(y, [group, root, partial, label](const Tensor& dy, InputGradients& dx) {
    const Tensor sum = partial ? reduced_gradient(dy, *group, label) : dy;
    dx.set(0, group->rank() == root ? sum : zeros(dy.shape(), dy.options()));
  });
}

Tensor copy_to_group(const Tensor& x, const CommunicatorPtr& group) {
  check_operand("copy_to_group", x, group);
  const OpCall call(copy_to_group_op, x);
  if (!call.recording()) return x;
  const std::string label = label_of("copy_to_group", x, *group, true);
  return call.record(x.detach(), [group, label](const Tensor& dy, InputGradients& dx) {
    dx.set(0, reduced_gradient(dy, *group, label));
  });
}

Tensor shard(const Tensor& x, const CommunicatorPtr& group, std::int64_t dim) {
  check_operand("shard", x, group);
  const OpCall call(shard_op, x);
  const int along = check_divides("shard", x, dim, *group);
  const Tensor part = own_part(x.detach(), *group, along);
  if (!call.recording()) return part;
  const std::string label = label_of(name_along("shard", along), x, *group, true);
  return call.record(part, [group, along, label](const Tensor& dy, InputGradients& dx) {
    dx.set(0, gathered_gradient(dy, *group, along, label));
  });
}

}  // namespace lockstep::parallel

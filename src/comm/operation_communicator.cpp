#include "comm/operation_communicator.hpp"

#include "comm/arguments.hpp"

namespace lockstep::comm {

Work OperationCommunicator::start(Operation operation, const CollectiveOptions& options) {
  operation.label = options.label;
  operation.id = options.id;
  operation.timeout = options.timeout.value_or(options_.timeout);
  return submit(std::move(operation));
}

std::string OperationCommunicator::next_part_name(int color) {
  return name_ + "/" + std::to_string(splits_++) + "." + std::to_string(color);
}

Work OperationCommunicator::all_reduce(Buffer buffer, Reduction reduction,
                                       const CollectiveOptions& options) {
  const CallSite site{"all_reduce", size_};
  check_buffer(site, buffer);
  check_reduction(site, buffer.dtype, reduction);
  auto* data = static_cast<std::byte*>(buffer.data);
  return start({.kind = OperationKind::all_reduce,
                .dtype = buffer.dtype,
                .reduction = reduction,
                .input = data,
                .output = data,
                .count = buffer.count},
               options);
}

Work OperationCommunicator::reduce_scatter(ConstBuffer input, Buffer output, Reduction reduction,
                                           std::span<const std::int64_t> counts,
                                           const CollectiveOptions& options) {
  const CallSite site{"reduce_scatter", size_};
  check_reduction(site, input.dtype, reduction);
  return start({.kind = OperationKind::reduce_scatter,
                .dtype = input.dtype,
                .reduction = reduction,
                .input = static_cast<const std::byte*>(input.data),
                .output = static_cast<std::byte*>(output.data),
                .count = input.count,
                .counts = check_parts(site, output, rank_, input, counts)},
               options);
}

Work OperationCommunicator::all_gather(ConstBuffer input, Buffer output,
                                       std::span<const std::int64_t> counts,
                                       const CollectiveOptions& options) {
  const CallSite site{"all_gather", size_};
  return start({.kind = OperationKind::all_gather,
                .dtype = input.dtype,
                .input = static_cast<const std::byte*>(input.data),
                .output = static_cast<std::byte*>(output.data),
                .count = output.count,
                .counts = check_parts(site, input, rank_, output, counts)},
               options);
}

Work OperationCommunicator::broadcast(Buffer buffer, int root, const CollectiveOptions& options) {
  const CallSite site{"broadcast", size_};
  check_buffer(site, buffer);
  check_rank(site, "root", root);
  auto* data = static_cast<std::byte*>(buffer.data);
  return start({.kind = OperationKind::broadcast,
                .dtype = buffer.dtype,
                .input = data,
                .output = data,
                .count = buffer.count,
                .peer = root},
               options);
}

Work OperationCommunicator::all_to_all(ConstBuffer input, Buffer output,
                                       const CollectiveOptions& options) {
  check_all_to_all({"all_to_all", size_}, input, output);
  return start({.kind = OperationKind::all_to_all,
                .dtype = input.dtype,
                .input = static_cast<const std::byte*>(input.data),
                .output = static_cast<std::byte*>(output.data),
                .count = input.count},
               options);
}

Work OperationCommunicator::send(ConstBuffer buffer, int to, const CollectiveOptions& options) {
  const CallSite site{"send", size_};
  check_buffer(site, buffer);
  check_rank(site, "destination", to);
  LOCKSTEP_CHECK(to != rank_, InvalidArgument, "send: rank ", to, " cannot send to itself");
  return start({.kind = OperationKind::send,
                .dtype = buffer.dtype,
                .input = static_cast<const std::byte*>(buffer.data),
                .count = buffer.count,
                .peer = to},
               options);
}

Work OperationCommunicator::receive(Buffer buffer, int from, const CollectiveOptions& options) {
  const CallSite site{"receive", size_};
  check_buffer(site, buffer);
  check_rank(site, "source", from);
  LOCKSTEP_CHECK(from != rank_, InvalidArgument, "receive: rank ", from,
                 " cannot receive from itself");
  return start({.kind = OperationKind::receive,
                .dtype = buffer.dtype,
                .output = static_cast<std::byte*>(buffer.data),
                .count = buffer.count,
                .peer = from},
               options);
}

Work OperationCommunicator::barrier(const CollectiveOptions& options) {
  return start({.kind = OperationKind::barrier}, options);
}

}  // namespace lockstep::comm

#include "lockstep/comm/communicator.hpp"

#include "comm/arguments.hpp"
#include "comm/batch.hpp"
#include "comm/communicator_backend.hpp"
#include "comm/split.hpp"
#include "comm/timeout.hpp"

namespace lockstep::comm {

Communicator::Communicator(std::unique_ptr<CommunicatorBackend> backend)
    : backend_(std::move(backend)), rank_(backend_->rank()), size_(backend_->size()) {}

Communicator::~Communicator() = default;

Device Communicator::device() const { return backend_->device(); }
std::string_view Communicator::backend() const { return backend_->kind(); }
const std::string& Communicator::name() const { return backend_->name(); }
void Communicator::abort(const std::string& reason) noexcept { backend_->abort(reason); }
std::string Communicator::describe_progress() const { return backend_->describe_progress(); }

CommunicatorPtr Communicator::split(int color, int key) {
  LOCKSTEP_CHECK(!batch_, InvalidArgument,
                 "split: a batch is being put together, and split would wait for operations that "
                 "start only after it; split first");
  const SplitPlan plan = agree_on_split(*this, color, key, splits_++);
  auto part = backend_->split(plan);
  return part ? make_intrusive<Communicator>(std::move(part)) : nullptr;
}

// --- operations ----------------------------------------------------------------------------------

Work Communicator::start(Operation operation, const CollectiveOptions& options) {
  operation.label = options.label;
  operation.id = options.id;
  operation.renew = options.renew;
  LOCKSTEP_CHECK(!options.timeout || *options.timeout > std::chrono::milliseconds(0),
                 InvalidArgument, operation.label,
                 operation.label.empty() ? "the timeout" : ": the timeout",
                 " of an operation must be positive, got ", options.timeout->count(), " ms");
  operation.timeout = as_long_as_can_be(options.timeout.value_or(*backend_->options().timeout));
  if (batch_) {
    operation.stream = current_stream(device());
    return batch_->add(std::move(operation));
  }
  return backend_->submit({&operation, 1});
}

Work Communicator::batch(FunctionRef<void()> body) {
  if (batch_) {
    const std::size_t before = batch_->size();
    try {
      body();
    } catch (...) {
      batch_->drop_from(before);
      throw;
    }
    return batch_->work();
  }
  Batch batch;
  batch_ = &batch;
  try {
    body();
  } catch (...) {
    batch_ = nullptr;
    throw;
  }
  batch_ = nullptr;
  return batch.start(*backend_);
}

Work Communicator::all_reduce(Buffer buffer, ReduceOp reduction, const CollectiveOptions& options) {
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

Work Communicator::reduce_scatter(ConstBuffer input, Buffer output, ReduceOp reduction,
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

Work Communicator::all_gather(ConstBuffer input, Buffer output,
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

Work Communicator::broadcast(Buffer buffer, int root, const CollectiveOptions& options) {
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

Work Communicator::all_to_all(ConstBuffer input, Buffer output, const CollectiveOptions& options) {
  check_all_to_all({"all_to_all", size_}, input, output);
  return start({.kind = OperationKind::all_to_all,
                .dtype = input.dtype,
                .input = static_cast<const std::byte*>(input.data),
                .output = static_cast<std::byte*>(output.data),
                .count = input.count},
               options);
}

Work Communicator::send(ConstBuffer buffer, int to, const CollectiveOptions& options) {
  const CallSite site{"send", size_};
  check_buffer(site, buffer);
  check_other_rank(site, "destination", to, rank_);
  return start({.kind = OperationKind::send,
                .dtype = buffer.dtype,
                .input = static_cast<const std::byte*>(buffer.data),
                .count = buffer.count,
                .peer = to},
               options);
}

Work Communicator::receive(Buffer buffer, int from, const CollectiveOptions& options) {
  const CallSite site{"receive", size_};
  check_buffer(site, buffer);
  check_other_rank(site, "source", from, rank_);
  return start({.kind = OperationKind::receive,
                .dtype = buffer.dtype,
                .output = static_cast<std::byte*>(buffer.data),
                .count = buffer.count,
                .peer = from},
               options);
}

Work Communicator::barrier(const CollectiveOptions& options) {
  return start({.kind = OperationKind::barrier}, options);
}

}  // namespace lockstep::comm

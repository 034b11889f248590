#include "comm/nccl/nccl_communicator.hpp"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "comm/arguments.hpp"
#include "comm/bootstrap/bootstraps.hpp"
#include "comm/nccl/nccl_types.hpp"
#include "runtime/cuda/device_guard.hpp"

namespace lockstep::comm {
namespace {

constexpr auto monitor_period = std::chrono::milliseconds(50);

std::size_t elements(std::int64_t count) { return static_cast<std::size_t>(count); }

// A reduction for one call; a scaled sum exists only as long as it is used.
class NcclReduction {
 public:
  NcclReduction(Reduction reduction, DType dtype, ncclComm_t communicator)
      : communicator_(communicator), operation_(nccl_operation(reduction.kind)) {
    if (reduction.kind != ReduceKind::scaled_sum) return;
    dispatch_floating(dtype, "scaled_sum", [&](auto tag) {
      using T = typename decltype(tag)::type;
      T factor = static_cast<T>(static_cast<AccumulateType<T>>(reduction.factor));
      status_ = ncclRedOpCreatePreMulSum(&operation_, &factor, nccl_type(dtype),
                                         ncclScalarHostImmediate, communicator_);
    });
    is_owned_ = status_ == ncclSuccess;
  }
  NcclReduction(const NcclReduction&) = delete;
  NcclReduction& operator=(const NcclReduction&) = delete;
  ~NcclReduction() {
    if (is_owned_) ncclRedOpDestroy(operation_, communicator_);
  }

  ncclResult_t status() const { return status_; }
  ncclRedOp_t operation() const { return operation_; }

 private:
  ncclComm_t communicator_;
  ncclRedOp_t operation_;
  ncclResult_t status_ = ncclSuccess;
  bool is_owned_ = false;
};

// Calls NCCL once for each part, as one group; the first error stops it.
template <class Call>
ncclResult_t grouped(int parts, Call call) {
  ncclResult_t status = ncclGroupStart();
  if (status != ncclSuccess) return status;
  for (int part = 0; part < parts; ++part) {
    status = call(part);
    if (status != ncclSuccess && status != ncclInProgress) break;
  }
  const ncclResult_t ended = ncclGroupEnd();
  return status == ncclSuccess || status == ncclInProgress ? ended : status;
}

bool are_even(const std::vector<std::int64_t>& parts) {
  return std::ranges::all_of(parts, [&](std::int64_t part) { return part == parts[0]; });
}

}  // namespace

NcclCommunicator::NcclCommunicator(IntrusivePtr<NcclGroup> group, std::string name,
                                   const CommunicatorOptions& options)
    : group_(std::move(group)),
      rank_(group_->rank()),
      size_(group_->size()),
      name_(std::move(name)),
      options_(options),
      stream_(group_->device(), StreamPriority::high),
      barrier_block_(device_allocator(group_->device()).allocate(sizeof(float), stream_)),
      monitor_([this] { monitor(); }) {}

NcclCommunicator::~NcclCommunicator() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  monitor_.join();
  device_allocator(device()).deallocate(barrier_block_);
}

// --- operations
// --------------------------------------------------------------------------------------

Work NcclCommunicator::submit(const char* call, std::int64_t count, DType dtype,
                              const CollectiveOptions& options, Body body) {
  const auto timeout = options.timeout.value_or(options_.timeout);
  Event ready(device());
  ready.record(current_stream(device()));
  ready.wait(stream_);
  std::ostringstream description;
  description << call << " #" << sequence_++ << " of " << count << ' ' << dtype;
  if (!options.label.empty()) description << " '" << options.label << '\'';
  group_->run(call, timeout, [&](ncclComm_t communicator) {
    return body(communicator, static_cast<cudaStream_t>(stream_.ref().handle));
  });
  auto work = make_intrusive<NcclWork>(group_, stream_, description.str(),
                                       NcclGroup::Clock::now() + timeout);
  const std::lock_guard lock(mutex_);
  in_flight_.push_back(work);
  return Work(work);
}

Work NcclCommunicator::all_reduce(Buffer buffer, Reduction reduction,
                                  const CollectiveOptions& options) {
  const CallSite site{"all_reduce", size_};
  check_buffer(site, buffer);
  check_reduction(site, buffer.dtype, reduction);
  return submit(site.call, buffer.count, buffer.dtype, options,
                [&](ncclComm_t communicator, cudaStream_t stream) {
                  const NcclReduction op(reduction, buffer.dtype, communicator);
                  if (op.status() != ncclSuccess) return op.status();
                  return ncclAllReduce(buffer.data, buffer.data, elements(buffer.count),
                                       nccl_type(buffer.dtype), op.operation(), communicator,
                                       stream);
                });
}

Work NcclCommunicator::reduce_scatter(ConstBuffer input, Buffer output, Reduction reduction,
                                      std::span<const std::int64_t> counts,
                                      const CollectiveOptions& options) {
  const CallSite site{"reduce_scatter", size_};
  check_reduction(site, input.dtype, reduction);
  const auto parts = check_parts(site, output, rank_, input, counts);
  const ncclDataType_t type = nccl_type(input.dtype);
  return submit(site.call, input.count, input.dtype, options,
                [&](ncclComm_t communicator, cudaStream_t stream) {
                  const NcclReduction op(reduction, input.dtype, communicator);
                  if (op.status() != ncclSuccess) return op.status();
                  if (are_even(parts))
                    return ncclReduceScatter(input.data, output.data, elements(output.count), type,
                                             op.operation(), communicator, stream);
                  const auto* part = static_cast<const std::byte*>(input.data);
                  return grouped(size_, [&](int root) {
                    const std::size_t count = elements(parts[static_cast<std::size_t>(root)]);
                    const std::byte* begin = part;
                    part += count * size_of(input.dtype);
                    return ncclReduce(begin, output.data, count, type, op.operation(), root,
                                      communicator, stream);
                  });
                });
}

Work NcclCommunicator::all_gather(ConstBuffer input, Buffer output,
                                  std::span<const std::int64_t> counts,
                                  const CollectiveOptions& options) {
  const CallSite site{"all_gather", size_};
  const auto parts = check_parts(site, input, rank_, output, counts);
  const ncclDataType_t type = nccl_type(input.dtype);
  return submit(site.call, output.count, output.dtype, options,
                [&](ncclComm_t communicator, cudaStream_t stream) {
                  if (are_even(parts))
                    return ncclAllGather(input.data, output.data, elements(input.count), type,
                                         communicator, stream);
                  auto* part = static_cast<std::byte*>(output.data);
                  return grouped(size_, [&](int root) {
                    const std::size_t count = elements(parts[static_cast<std::size_t>(root)]);
                    std::byte* begin = part;
                    part += count * size_of(output.dtype);
                    return ncclBroadcast(root == rank_ ? input.data : begin, begin, count, type,
                                         root, communicator, stream);
                  });
                });
}

Work NcclCommunicator::broadcast(Buffer buffer, int root, const CollectiveOptions& options) {
  const CallSite site{"broadcast", size_};
  check_buffer(site, buffer);
  check_rank(site, "root", root);
  return submit(site.call, buffer.count, buffer.dtype, options,
                [&](ncclComm_t communicator, cudaStream_t stream) {
                  return ncclBroadcast(buffer.data, buffer.data, elements(buffer.count),
                                       nccl_type(buffer.dtype), root, communicator, stream);
                });
}

Work NcclCommunicator::all_to_all(ConstBuffer input, Buffer output,
                                  const CollectiveOptions& options) {
  const CallSite site{"all_to_all", size_};
  check_all_to_all(site, input, output);
  const std::size_t count = elements(input.count / size_);
  const std::size_t bytes = count * size_of(input.dtype);
  const ncclDataType_t type = nccl_type(input.dtype);
  const auto* from = static_cast<const std::byte*>(input.data);
  auto* to = static_cast<std::byte*>(output.data);
  return submit(site.call, input.count, input.dtype, options,
                [&](ncclComm_t communicator, cudaStream_t stream) {
                  return grouped(size_, [&](int peer) {
                    const std::size_t offset = static_cast<std::size_t>(peer) * bytes;
                    const ncclResult_t sent =
                        ncclSend(from + offset, count, type, peer, communicator, stream);
                    if (sent != ncclSuccess && sent != ncclInProgress) return sent;
                    return ncclRecv(to + offset, count, type, peer, communicator, stream);
                  });
                });
}

Work NcclCommunicator::send(ConstBuffer buffer, int to, const CollectiveOptions& options) {
  const CallSite site{"send", size_};
  check_buffer(site, buffer);
  check_rank(site, "destination", to);
  LOCKSTEP_CHECK(to != rank_, InvalidArgument, "send: rank ", to, " cannot send to itself");
  return submit(site.call, buffer.count, buffer.dtype, options,
                [&](ncclComm_t communicator, cudaStream_t stream) {
                  return ncclSend(buffer.data, elements(buffer.count), nccl_type(buffer.dtype), to,
                                  communicator, stream);
                });
}

Work NcclCommunicator::receive(Buffer buffer, int from, const CollectiveOptions& options) {
  const CallSite site{"receive", size_};
  check_buffer(site, buffer);
  check_rank(site, "source", from);
  LOCKSTEP_CHECK(from != rank_, InvalidArgument, "receive: rank ", from,
                 " cannot receive from itself");
  return submit(site.call, buffer.count, buffer.dtype, options,
                [&](ncclComm_t communicator, cudaStream_t stream) {
                  return ncclRecv(buffer.data, elements(buffer.count), nccl_type(buffer.dtype),
                                  from, communicator, stream);
                });
}

Work NcclCommunicator::barrier(const CollectiveOptions& options) {
  return submit("barrier", 1, DType::f32, options,
                [&](ncclComm_t communicator, cudaStream_t stream) {
                  return ncclAllReduce(barrier_block_->data, barrier_block_->data, 1, ncclFloat32,
                                       ncclMax, communicator, stream);
                });
}

CommunicatorPtr NcclCommunicator::split(int color, int key) {
  // NCCL wants no operation under way while it splits.
  barrier({.label = "split"}).synchronize();
  auto part = group_->split(color, key, options_.timeout);
  const std::string name = name_ + "/" + std::to_string(splits_++) + "." + std::to_string(color);
  if (!part) return nullptr;
  return make_intrusive<NcclCommunicator>(std::move(part), name, options_);
}

// --- failures
// ------------------------------------------------------------------------------------------

void NcclCommunicator::abort(const std::string& reason) noexcept {
  group_->abort(host::Failure::from_peer(reason));
}

std::string NcclCommunicator::describe_progress() const {
  const std::lock_guard lock(mutex_);
  std::ostringstream out;
  out << "rank " << rank_ << " of " << name_ << ": ";
  if (in_flight_.empty())
    out << "idle";
  else
    out << "in " << in_flight_.front()->description() << ", " << in_flight_.size() - 1
        << " more queued";
  if (const auto failure = group_->failure()) out << "; failed: " << failure->message();
  return out.str();
}

void NcclCommunicator::monitor() {
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, monitor_period, [&] { return stopping_; })) {
    lock.unlock();
    group_->poll_background();
    check_in_flight();
    lock.lock();
  }
}

void NcclCommunicator::check_in_flight() {
  std::string overdue;
  {
    const std::lock_guard lock(mutex_);
    while (!in_flight_.empty() && in_flight_.front()->is_completed()) in_flight_.pop_front();
    if (in_flight_.empty() || !in_flight_.front()->is_overdue()) return;
    overdue = in_flight_.front()->description();
  }
  group_->abort(host::Failure::timeout("rank " + std::to_string(rank_) + " of " + name_ + ", in " +
                                       overdue + ": timed out waiting for the other ranks"));
}

// --- creation
// ------------------------------------------------------------------------------------------

CommunicatorPtr make_nccl_communicator(Bootstrap& bootstrap, Device device,
                                       const CommunicatorOptions& options) {
  ncclUniqueId id{};
  std::string bytes;
  // An empty id tells the others that rank 0 has none, so that nobody waits for it.
  if (bootstrap.rank() == 0 && ncclGetUniqueId(&id) == ncclSuccess)
    bytes.assign(id.internal, sizeof id.internal);
  bytes = bootstrap.broadcast_bytes(bytes);
  LOCKSTEP_CHECK(bytes.size() == sizeof id.internal, Unsupported,
                 "rank 0 got no unique id from NCCL: ", ncclGetLastError(nullptr));
  std::memcpy(id.internal, bytes.data(), bytes.size());
  return make_intrusive<NcclCommunicator>(
      make_intrusive<NcclGroup>(device, id, bootstrap.rank(), bootstrap.size(), options.timeout),
      "world", options);
}

}  // namespace lockstep::comm

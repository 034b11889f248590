#include "nccl/group.hpp"

#include <algorithm>
#include <utility>

#include "nccl/failure.hpp"
#include "nccl/handle.hpp"
#include "nccl/launch.hpp"

namespace simgpu::nccl {

Group& Group::current() {
  thread_local Group group;
  return group;
}

void Group::note_failure(ncclResult_t status) {
  if (depth_ > 0 && failure_ == ncclSuccess) failure_ = status;
}

ncclResult_t Group::add(const std::shared_ptr<Communicator>& communicator,
                        const Arguments& arguments, cudaStream_t stream, const CallSite& site) {
  auto batch = std::ranges::find(batches_, communicator, &Batch::communicator);
  if (batch == batches_.end()) {
    batches_.push_back({communicator, {}, {}, site});
    batch = batches_.end() - 1;
  }
  batch->calls.push_back(arguments);
  if (std::ranges::find(batch->streams, stream) == batch->streams.end())
    batch->streams.push_back(stream);
  return depth_ > 0 ? ncclSuccess : launch_batches();
}

ncclResult_t Group::add(const std::shared_ptr<Communicator>& communicator,
                        std::function<void()> work, ncclComm_t* slot) {
  communicator->start(std::move(work));
  jobs_.push_back({communicator, slot});
  return depth_ > 0 ? ncclSuccess : finish_jobs();
}

ncclResult_t Group::end() {
  if (depth_ == 0)
    throw Failure(ncclInvalidUsage, "ncclGroupEnd without an ncclGroupStart before it");
  if (--depth_ > 0) return ncclSuccess;
  const ncclResult_t failure = std::exchange(failure_, ncclSuccess);
  if (failure != ncclSuccess) batches_.clear();  // nothing of a failed group is launched
  const ncclResult_t jobs = finish_jobs();
  const ncclResult_t launched = launch_batches();
  for (const ncclResult_t status : {failure, jobs, launched})
    if (status != ncclSuccess && status != ncclInProgress) return status;
  return jobs == ncclInProgress ? jobs : launched;
}

ncclResult_t Group::finish_jobs() {
  ncclResult_t result = ncclSuccess;
  for (const Job& job : std::exchange(jobs_, {})) {
    const bool is_blocking = job.communicator->options().is_blocking;
    const ncclResult_t status = is_blocking ? job.communicator->wait() : ncclInProgress;
    if (result == ncclSuccess || (result == ncclInProgress && status != ncclSuccess))
      result = status;
    if (!is_blocking || status == ncclSuccess || !job.slot) continue;
    end_handle(*job.slot);
    *job.slot = nullptr;
  }
  return result;
}

ncclResult_t Group::launch_batches() {
  ncclResult_t result = ncclSuccess;
  std::vector<Batch> batches = std::exchange(batches_, {});
  for (Batch& batch : batches) batch.communicator->connect(batch.calls);
  for (Batch& batch : batches) {
    if (batch.communicator->options().is_blocking) batch.communicator->require_ready();
    launch(batch.communicator, std::move(batch.calls), batch.streams, batch.site);
    if (batch.communicator->answer() == ncclInProgress) result = ncclInProgress;
  }
  return result;
}

}  // namespace simgpu::nccl

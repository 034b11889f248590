#include "nccl/launch.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

#include "base/faults.hpp"
#include "base/report.hpp"
#include "engine/access_check.hpp"
#include "engine/entry.hpp"
#include "engine/host.hpp"
#include "memory/address_space.hpp"
#include "nccl/disagreement.hpp"
#include "nccl/failure.hpp"
#include "nccl/overlap.hpp"

namespace simgpu::nccl {
namespace {

// How long a mismatch waits for the ranks that have not called anything yet.
constexpr auto mismatch_grace_period = std::chrono::seconds(1);

std::chrono::milliseconds warn_after() {
  static const char* const text = std::getenv("LOCKSTEP_SIM_COLLECTIVE_WARN_MS");
  static const long value = text ? std::strtol(text, nullptr, 10) : 10'000;
  return std::chrono::milliseconds(value);
}

}  // namespace

Launch::Launch(std::shared_ptr<Communicator> communicator, std::vector<Arguments> calls,
               CallSite site, bool is_captured)
    : communicator_(std::move(communicator)),
      arguments_(std::move(calls)),
      site_(site),
      setups_(communicator_->setups()) {
  for (std::size_t i = 0; i < arguments_.size(); ++i)
    if (faults().collective_hangs()) hangs_ = true;
  if (is_captured) {
    communicator_->count_captured(1);
    return;
  }
  ticket_ = communicator_->take_ticket();
  hold_registered();
}

Launch::~Launch() {
  if (!ticket_) communicator_->count_captured(-1);
}

std::string Launch::name() const {
  if (arguments_.size() == 1) return std::string("nccl") + arguments_[0].signature.name();
  std::string text = "ncclGroupEnd (";
  constexpr std::size_t shown = 4;
  for (std::size_t i = 0; i < std::min(arguments_.size(), shown); ++i)
    text += (i ? ", nccl" : "nccl") + std::string(arguments_[i].signature.name());
  return text + (arguments_.size() > shown ? ", ...)" : ")");
}

std::vector<Access> Launch::accesses() const {
  std::vector<Access> all;
  for (const Arguments& arguments : arguments_)
    std::ranges::copy(accesses_of(arguments, communicator_->rank(), communicator_->size()),
                      std::back_inserter(all));
  return all;
}

profile::Fields Launch::profile() const {
  if (!profile::is_on()) return {};
  std::string calls;
  for (const Arguments& arguments : arguments_) {
    const Signature& call = arguments.signature;
    const std::size_t bytes = call.count * size_of(static_cast<ncclDataType_t>(call.type));
    calls += (calls.empty() ? "{" : ",{") +
             profile::Fields()
                 .add("op", call.name())
                 .add("count", call.count)
                 .add("dtype", call.type_name())
                 .add("bytes", bytes)
                 .text() +
             '}';
  }
  return profile::Fields()
      .add("kind", "collective")
      .raw("calls", '[' + calls + ']')
      .add("communicator", communicator_->number())
      .add("ranks", communicator_->size());
}

void Launch::hold_registered() {
  for (const Arguments& arguments : arguments_)
    std::ranges::move(communicator_->registrations().of(
                          accesses_of(arguments, communicator_->rank(), communicator_->size())),
                      std::back_inserter(registered_));
}

void Launch::begin() {
  is_running_ = true;
  if (!ticket_) hold_registered();
  check_memory();
  has_warned_ = has_reported_ = false;
  mismatched_.reset();
  std::map<std::pair<Function, int>, std::size_t> messages;
  for (const Arguments& arguments : arguments_) {
    const Signature& signature = arguments.signature;
    const std::size_t round = is_point_to_point(signature.function)
                                  ? messages[{signature.function, signature.root}]++
                                  : 0;
    calls_.push_back(
        {Call(arguments, communicator_->counters().take(signature), *communicator_->exchange()),
         round});
  }
}

// The ranks' values must be there, and the memory for the result. What lies beside a buffer is
// memory, too, for a GPU.
void Launch::check_memory() {
  const std::vector<Access> all = accesses();
  if (check_accesses(name(), site_, all, false)) {
    check_accesses(name(), site_, all);
    return;
  }
  overruns_ = std::ranges::all_of(all, is_reachable);
  if (overruns_) return;
  raise_sticky_error(cudaErrorIllegalAddress);
  communicator_->fail(ncclUnhandledCudaError,
                      name() + ": an illegal memory access was encountered");
}

bool Launch::is_done(Call& call) {
  if (call.advance() != Call::Progress::done) return false;
  report_partly_registered(*communicator_, call, site_);
  return true;
}

// What holds the launch up: of the round that is under way, a mismatched call first.
const Call& Launch::held_up() const {
  const std::size_t round = std::ranges::min_element(calls_, {}, &Step::round)->round;
  const Step* found = nullptr;
  for (const Step& step : calls_)
    if (step.round == round &&
        (!found || (step.call.is_mismatched() && !found->call.is_mismatched())))
      found = &step;
  return found->call;
}

// True once all are done.
bool Launch::advance_round() {
  while (!calls_.empty()) {
    const std::size_t round = std::ranges::min_element(calls_, {}, &Step::round)->round;
    std::erase_if(calls_, [&](Step& step) { return step.round == round && is_done(step.call); });
    if (std::ranges::any_of(calls_, [&](const Step& step) { return step.round == round; }))
      return false;
  }
  return true;
}

void Launch::end() {
  registered_.clear();
  mark_written(accesses());
  if (overruns_) mend_guards();  // as reported
  is_running_ = false;
  asked_.reset();
  communicator_->end_launch(ticket_.has_value());
}

bool Launch::run() {
  if (communicator_->is_aborted() || has_sticky_error()) {
    // What was launched behind it runs, on whatever lies there: the abort is what went wrong.
    if (!has_sticky_error() && std::ranges::all_of(accesses(), is_reachable))
      mark_written(accesses());
    calls_.clear();
    registered_.clear();
    return true;
  }
  if (!asked_) asked_ = Clock::now();
  if (!is_running_) {
    if (!communicator_->has_connected(setups_)) return false;
    if (!communicator_->begin_launch(ticket_ ? &*ticket_ : nullptr)) return false;
    begin();
  }
  if (hangs_ || communicator_->has_failed()) return false;
  if (advance_round()) {
    end();
    return true;
  }
  communicator_->look_for_lost_peers();
  look_at_mismatch(held_up());
  warn_if_long();
  return false;
}

void Launch::look_at_mismatch(const Call& call) {
  if (!call.is_mismatched() || has_reported_) return;
  if (!mismatched_) mismatched_ = Clock::now();
  if (!call.missing().empty() && Clock::now() - *mismatched_ < mismatch_grace_period) return;
  has_reported_ = true;
  report_disagreement(*communicator_, call, site_);
}

void Launch::warn_if_long() {
  if (has_warned_ || has_reported_ || Clock::now() - *asked_ < warn_after()) return;
  has_warned_ = true;
  warn_about_absence(*communicator_, held_up(), site_, Clock::now() - *asked_);
}

namespace {

void require_success(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw Failure(ncclUnhandledCudaError, std::string(what) + ": " + cudaGetErrorString(status));
}

// An event that orders what comes on `later` after what is on `earlier` now.
void order(cudaStream_t earlier, cudaStream_t later) {
  cudaEvent_t event = nullptr;
  require_success(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                  "cudaEventCreateWithFlags");
  cudaError_t status = cudaEventRecord(event, earlier);
  if (status == cudaSuccess) status = cudaStreamWaitEvent(later, event, 0);
  cudaEventDestroy(event);
  require_success(status, "joining the streams of a group");
}

// The kernel that sends to its own rank is the one that receives.
void require_pairs_with_itself(const Communicator& communicator,
                               const std::vector<Arguments>& calls) {
  const auto own = [&](Function function) {
    return std::ranges::count_if(calls, [&](const Arguments& call) {
      return call.signature.function == function && call.signature.root == communicator.rank();
    });
  };
  const auto sends = own(Function::send), receives = own(Function::receive);
  if (sends > receives)
    throw Failure(ncclInvalidUsage, "Trying to send to self without a matching recv");
  if (sends < receives)
    throw Failure(ncclInvalidUsage, "Trying to recv to self without a matching send");
}

}  // namespace

void launch(const std::shared_ptr<Communicator>& communicator, std::vector<Arguments> calls,
            const std::vector<cudaStream_t>& streams, const CallSite& site) {
  const int device = communicator->options().device;
  const OnDevice guard(device);
  require_pairs_with_itself(*communicator, calls);
  for (cudaStream_t stream : streams) {
    int other = device;
    if (stream) require_success(device_of_stream(stream, &other), "the stream of a collective");
    if (other != device)
      throw Failure(ncclUnhandledCudaError, "a stream of device " + std::to_string(other) +
                                                " was given to a communicator of device " +
                                                std::to_string(device));
  }
  if (const std::string found = overlap_of(calls, communicator->rank(), communicator->size());
      !found.empty())
    report(Finding::race, found + "\n      at " + describe(site));
  if (const std::string found = misaligned_of(calls, communicator->rank(), communicator->size());
      !found.empty())
    report(Finding::misaligned, found + "\n      at " + describe(site));
  for (std::size_t i = 1; i < streams.size(); ++i) order(streams[i], streams[0]);
  const bool is_captured = is_capturing(streams[0]);
  const bool has_collectives = !std::ranges::all_of(
      calls, [](const Arguments& call) { return is_point_to_point(call.signature.function); });
  const auto state = std::make_shared<Launch>(communicator, std::move(calls), site, is_captured);
  Operation operation;
  operation.name = state->name();
  operation.site = site;
  operation.accesses = state->accesses();
  operation.meets_peers = true;
  operation.profile = state->profile();
  operation.run = [state] { return state->run(); };
  const cudaError_t status = enqueue(streams[0], std::move(operation));
  // Its place in the order stays empty: nothing after it can run.
  if (status != cudaSuccess)
    communicator->fail(ncclUnhandledCudaError, std::string("a collective could not be queued: ") +
                                                   cudaGetErrorString(status));
  require_success(status, "queueing a collective");
  if (is_captured && has_collectives) communicator->meet_for_capture();
  for (std::size_t i = 1; i < streams.size(); ++i) order(streams[0], streams[i]);
}

}  // namespace simgpu::nccl

#include "engine/machine.hpp"

#include <algorithm>
#include <cstdlib>

#include "base/faults.hpp"
#include "base/host_waits.hpp"
#include "base/leaks.hpp"
#include "engine/host.hpp"
#include "memory/address_space.hpp"
#include "memory/contents.hpp"
#include "memory/device_side.hpp"
#include "memory/pinned_pages.hpp"

namespace simgpu {
namespace {

thread_local bool is_executor = false;
thread_local std::vector<Access> touched_now;
thread_local profile::Fields measured_now;
thread_local const Actor* running = nullptr;

std::string stream_name(unsigned number, int device, unsigned flags) {
  return "stream " + std::to_string(number) +
         ((flags & cudaStreamNonBlocking) != 0 ? " (non-blocking, device " : " (device ") +
         std::to_string(device) + ")";
}

}  // namespace

bool on_executor() { return is_executor; }

void touched(std::vector<Access> accesses) {
  touched_now.insert(touched_now.end(), accesses.begin(), accesses.end());
}

void measured(profile::Fields fields) { measured_now = std::move(fields); }

Machine& Machine::instance() {
  static Machine* const machine = new Machine;
  return *machine;
}

Machine::Machine() {
  scheduler_ = std::make_unique<Scheduler>(mutex, options().order, options().seed,
                                           static_cast<SchedulerObserver&>(*this));
  begin_host_waits();
  profile::begin();
  if (options().host_threads_apart) set_host_threads_apart();
  set_host_order({.is_up_to_date = simgpu::host_is_up_to_date_with, .access = host_access});
  std::atexit(end_of_process);
}

// What was queued and never waited for is run and checked too.
void Machine::end_of_process() {
  Machine& machine = instance();
  if (::getpid() != machine.process_) return;  // a forked child has no threads that would run it
  {
    Lock lock = machine.lock();
    machine.scheduler_->drain(lock);
  }
  machine.scheduler_->stop();
  check_guards();
  report_host_waits();
  if (options().report_leaks) report_leaks();
}

void Machine::pause() { rest_device_side(); }

void enter_executor_side() {
  is_executor = true;
  enter_device_side();
}

const Actor& running_actor() { return *running; }

void Machine::begin_thread() {
  enter_executor_side();
  thread_local const OwnLocks for_ever;
}

void Machine::begin_task(const Task& task) {
  touched_now.clear();
  measured_now = {};
  running = task.actor.get();
}

void Machine::end_task(const Task& task) {
  // A kernel's ranges are joined over gaps where there are very many.
  constexpr std::size_t many_ranges = 64;
  const std::vector<Access>& accesses = task.accesses_are_bounds ? touched_now : task.accesses;
  if (!task.actor->changes_hands)
    Contents::instance().has_run(*task.actor, accesses, accesses.size() < many_ranges);
  if (task.origin.id != 0)
    profile::write(task.origin, task.actor->site,
                   profile::Fields(task.profile).append(measured_now));
  if (!task.accesses_are_bounds) return;
  check_accesses(task.actor, touched_now);
  const std::lock_guard lock(races_mutex_);
  races_.has_come(task.actor->number);
}

CUstream_st* Machine::find(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return &legacy_stream(current_device());
  if (handle == cudaStreamPerThread) {
    thread_local std::map<int, CUstream_st*> own;
    CUstream_st*& stream = own[current_device()];
    if (stream == nullptr) stream = &create_stream(current_device(), cudaStreamDefault, 0);
    return stream;
  }
  const auto found = streams_.find(handle);
  return found == streams_.end() ? nullptr : found->second.get();
}

CUevent_st* Machine::find(cudaEvent_t handle) {
  const auto found = events_.find(handle);
  return found == events_.end() ? nullptr : found->second.get();
}

CUstream_st& Machine::legacy_stream(int device) {
  std::unique_ptr<CUstream_st>& stream = legacy_[device];
  if (stream == nullptr) {
    stream = std::make_unique<CUstream_st>();
    stream->device = device;
    stream->is_legacy = true;
    stream->queue = &create_queue(device, "the default stream of device " + std::to_string(device));
  }
  return *stream;
}

std::vector<CUstream_st*> Machine::streams_of(int device) {
  std::vector<CUstream_st*> found;
  if (const auto legacy = legacy_.find(device); legacy != legacy_.end())
    found.push_back(legacy->second.get());
  for (const auto& [handle, stream] : streams_)
    if (stream->device == device) found.push_back(stream.get());
  return found;
}

CUstream_st& Machine::create_stream(int device, unsigned flags, int priority) {
  auto stream = std::make_unique<CUstream_st>();
  stream->device = device;
  stream->flags = flags;
  stream->priority = priority;
  stream->queue = &create_queue(device, stream_name(numbers_ + 1, device, flags));
  CUstream_st& created = *stream;
  streams_.emplace(&created, std::move(stream));
  return created;
}

void Machine::destroy_stream(CUstream_st& stream) {
  destroy_queue(*stream.queue);
  streams_.erase(&stream);
}

CUevent_st& Machine::create_event(int device, unsigned flags) {
  auto event = std::make_unique<CUevent_st>();
  event->device = device;
  event->number = ++event_numbers_;
  event->flags = flags;
  CUevent_st& created = *event;
  events_.emplace(&created, std::move(event));
  return created;
}

std::vector<CUevent_st*> Machine::events_of(int device) {
  std::vector<CUevent_st*> found;
  for (const auto& [handle, event] : events_)
    if (event->device == device) found.push_back(event.get());
  return found;
}

void Machine::destroy_event(CUevent_st& event) { events_.erase(&event); }

Queue& Machine::create_queue(int device, std::string name) {
  // A component may serve again for one who knows that all of its steps are over.
  const auto known = std::find_if(free_components_.begin(), free_components_.end(),
                                  [](Epoch last) { return host_clock().knows(last); });
  Component component = 0;
  if (known == free_components_.end()) {
    component = ++components_;
  } else {
    component = known->component;
    free_components_.erase(known);
  }
  Queue& queue = scheduler_->add_queue(device, ++numbers_, component, std::move(name));
  queue.clock = host_clock();
  return queue;
}

void Machine::destroy_queue(Queue& queue) {
  Ends& ends = gone_[queue.device];
  std::erase_if(ends.tasks, [](const TaskPtr& task) { return task->done; });
  if (queue.last && !queue.last->done) ends.tasks.push_back(queue.last);
  ends.clock.join(queue.clock);
  free_components_.push_back({queue.component, queue.clock[queue.component]});
  scheduler_->retire(queue);
}

std::vector<TaskPtr> Machine::legacy_order(CUstream_st& stream) {
  std::vector<TaskPtr> after;
  const auto follow = [&](const CUstream_st& other) {
    stream.queue->clock.join(other.queue->clock);
    if (other.queue->last != nullptr) after.push_back(other.queue->last);
  };
  if (stream.is_legacy) {
    for (const CUstream_st* other : streams_of(stream.device))
      if (other->is_blocking()) follow(*other);
  } else if (stream.is_blocking()) {
    if (const auto legacy = legacy_.find(stream.device); legacy != legacy_.end())
      follow(*legacy->second);
  }
  return after;
}

/// Nodes that have no record of their own, such as blocks that come and go, pass on which they
/// follow.
void Machine::add_graph_profile(Task& task, const std::vector<TaskPtr>& after) const {
  task.graph_launch = graph_launch;
  for (const TaskPtr& other : after)
    if (other->graph_launch == graph_launch)
      task.records.insert(task.records.end(), other->records.begin(), other->records.end());
  std::ranges::sort(task.records);
  const auto twice = std::ranges::unique(task.records);
  task.records.erase(twice.begin(), twice.end());
  if (task.origin.id == 0) return;
  std::string before;
  for (const std::uint64_t id : task.records)
    before += (before.empty() ? "" : ",") + std::to_string(id);
  task.profile.add("graph_launch", graph_launch).raw("after", '[' + before + ']');
  task.records = {task.origin.id};
}

/// What other streams have to end first, by the rules of the legacy default stream.
void Machine::add_followed(Task& task, const std::vector<TaskPtr>& after) {
  std::string ids;
  for (const TaskPtr& other : after)
    if (other->origin.id != 0) ids += (ids.empty() ? "" : ",") + std::to_string(other->origin.id);
  if (!ids.empty()) task.profile.raw("follows", '[' + ids + ']');
}

TaskPtr Machine::put(Queue& queue, Operation operation, std::vector<TaskPtr> after, Lock& lock) {
  queue.clock.join(host_clock());
  const Epoch epoch = queue.clock.advance(queue.component);
  Task task;
  task.actor = std::make_shared<const Actor>(Actor{std::move(operation.name), operation.site,
                                                   queue.name, epoch, queue.clock, false,
                                                   next_call_number(), operation.changes_hands});
  if (operation.accesses_are_bounds) {
    const std::lock_guard races_lock(races_mutex_);
    races_.expect(task.actor->number);
  } else {
    task.accesses = std::move(operation.accesses);
  }
  if (!operation.profile.empty()) {
    task.origin = profile::ask();
    task.profile = std::move(operation.profile);
    task.profile.add("name", task.actor->name).add("device", queue.device);
    task.profile.add("stream", queue.number);
    if (graph_launch == 0) add_followed(task, after);
  }
  if (graph_launch != 0) add_graph_profile(task, after);
  task.run = std::move(operation.run);
  task.accesses_are_bounds = operation.accesses_are_bounds;
  task.meets_peers = operation.meets_peers;
  task.after = std::move(after);
  task.is_stalled = faults().stalled(queue.number);
  return scheduler_->add(queue, std::move(task), lock);
}

}  // namespace simgpu

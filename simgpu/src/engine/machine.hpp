#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include <unistd.h>

#include "engine/host_threads.hpp"
#include "engine/objects.hpp"
#include "engine/operation.hpp"
#include "engine/scheduler.hpp"

/// @file
/// The state of the simulated devices of this process.

namespace simgpu {

/// Made by the first call and never destroyed, so that programs may call the runtime while they
/// end.
class Machine final : private SchedulerObserver {
 public:
  using Lock = Scheduler::Lock;

  static Machine& instance();

  /// Guards all of the below but what is said to guard itself.
  std::mutex mutex;

  Lock lock() { return Lock(mutex); }
  Scheduler& scheduler() { return *scheduler_; }

  /// The stream of a handle, special handles included; null if there is none.
  CUstream_st* find(cudaStream_t handle);
  CUevent_st* find(cudaEvent_t handle);
  CUstream_st& legacy_stream(int device);
  /// All streams of a device, the default ones included.
  std::vector<CUstream_st*> streams_of(int device);
  CUstream_st& create_stream(int device, unsigned flags, int priority);
  void destroy_stream(CUstream_st& stream);
  CUevent_st& create_event(int device, unsigned flags);
  void destroy_event(CUevent_st& event);
  std::vector<CUevent_st*> events_of(int device);
  /// A queue of its own clock component, for what is ordered by more than a stream.
  Queue& create_queue(int device, std::string name);
  void destroy_queue(Queue& queue);
  /// What streams and branches of a device end with that are gone: who waits for the device waits
  /// for it, too.
  struct Ends {
    std::vector<TaskPtr> tasks;  ///< that are not done yet
    VectorClock clock;           ///< after all of them
  };
  const Ends& ends_of_gone(int device) { return gone_[device]; }

  /// Puts an operation at the end of a queue. Its exact accesses are to be checked afterwards,
  /// without the mutex.
  TaskPtr put(Queue& queue, Operation operation, std::vector<TaskPtr> after, Lock& lock);
  /// Makes what comes next in a stream follow what the rules of the legacy default stream ask.
  std::vector<TaskPtr> legacy_order(CUstream_st& stream);

  /// Compares accesses with what is known and reports races. Guards itself; call it without the
  /// mutex.
  void check_accesses(const std::shared_ptr<const Actor>& actor,
                      const std::vector<Access>& accesses);
  void forget_accesses(const void* data, std::size_t bytes);
  /// See RaceDetector::writer_near. Guards itself.
  std::shared_ptr<const Actor> writer_near(const void* address, const void* begin,
                                           std::size_t bytes);
  /// Pinned and registered memory of operations that the host may not be up to date with. Guards
  /// itself.
  void note_pinned(const std::shared_ptr<const Actor>& actor, const std::vector<Access>& accesses);
  /// Reports the operations that may still use such memory, which a call of the host gives back.
  /// Without the mutex.
  void check_given_back(const char* call, const void* data, std::size_t bytes,
                        const CallSite& site);
  /// True if the host knows all operations that use the memory to be over. Without the mutex.
  bool host_is_up_to_date_with(const void* data, std::size_t bytes);
  /// The calling thread of the host as an actor, for an access of its own.
  std::shared_ptr<const Actor> host_actor(std::string name, const CallSite& site);

  /// The error after which nothing works any more; cudaSuccess while there is none. Any thread.
  std::atomic<cudaError_t> sticky_error = cudaSuccess;

  /// The record of the launch whose nodes are being queued; 0: none.
  std::uint64_t graph_launch = 0;

  /// Captures that are going on, graphs.cpp's own.
  std::set<std::shared_ptr<Capture>> captures;

 private:
  Machine();
  void begin_thread() override;
  void begin_task(const Task& task) override;
  void end_task(const Task& task) override;
  void pause() override;
  static void end_of_process();
  void add_graph_profile(Task& task, const std::vector<TaskPtr>& after) const;
  static void add_followed(Task& task, const std::vector<TaskPtr>& after);
  VectorClock what_the_host_knows();
  std::vector<std::pair<std::shared_ptr<const Actor>, Access>> unfinished_uses(const void* data,
                                                                               std::size_t bytes);

  const pid_t process_ = ::getpid();
  std::unique_ptr<Scheduler> scheduler_;
  std::map<int, std::unique_ptr<CUstream_st>> legacy_;
  std::map<int, Ends> gone_;
  std::unordered_map<const void*, std::unique_ptr<CUstream_st>> streams_;
  std::unordered_map<const void*, std::unique_ptr<CUevent_st>> events_;
  unsigned numbers_ = 0;
  unsigned event_numbers_ = 0;
  Component components_ = host_component;
  std::vector<Epoch> free_components_;  // with the last step of the queue that had it

  std::mutex races_mutex_;
  RaceDetector races_;
  std::set<std::pair<std::string, std::string>> reported_;
  std::vector<std::pair<std::shared_ptr<const Actor>, Access>> pinned_;
  std::size_t most_pinned_ = 64;  ///< when those that are over are left out
};

/// True on the thread that runs operations and on those of callbacks, where the runtime must not be
/// called.
bool on_executor();
/// Makes the calling thread one of these: it has the rights of the device.
void enter_executor_side();
/// The operation that the executor runs. On the executor.
const Actor& running_actor();

}  // namespace simgpu

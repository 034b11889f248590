#include "engine/callback_threads.hpp"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/machine.hpp"

namespace simgpu {
namespace {

// Functions that take less run in the order of the virtual time, like all else.
constexpr auto usual_time = std::chrono::milliseconds(20);

/// A call of a function.
struct Call {
  std::function<void()> function;
  VectorClock follows;
  bool is_done = false;
};

/// As many threads as functions run at once, kept for the next. Never destroyed: a function may
/// block for ever.
class CallbackThreads {
 public:
  static CallbackThreads& instance() {
    static CallbackThreads* const all = new CallbackThreads;
    return *all;
  }

  void start(const std::shared_ptr<Call>& call) {
    const std::lock_guard lock(mutex_);
    calls_.push_back(call);
    if (calls_.size() > idle_) std::thread([this] { run(); }).detach();
    changed_.notify_all();
  }

  bool is_done_within(const Call& call, std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [&] { return call.is_done; });
  }

 private:
  void run() {
    enter_executor_side();
    const OwnLocks own;
    for (std::unique_lock lock(mutex_);;) {
      ++idle_;
      changed_.wait(lock, [this] { return !calls_.empty(); });
      --idle_;
      const std::shared_ptr<Call> call = std::move(calls_.front());
      calls_.pop_front();
      lock.unlock();
      {
        const auto guard = Machine::instance().lock();
        follow_operation(call->follows);
      }
      {
        const ProgramLocks program;
        call->function();
      }
      lock.lock();
      call->is_done = true;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Call>> calls_;
  std::size_t idle_ = 0;
};

}  // namespace

std::function<bool()> on_callback_thread(std::function<void()> function) {
  return [function = std::move(function), call = std::shared_ptr<Call>()]() mutable {
    auto time = std::chrono::milliseconds(0);
    if (call == nullptr) {
      call = std::make_shared<Call>(Call{function, running_actor().before});
      CallbackThreads::instance().start(call);
      time = usual_time;
    }
    if (!CallbackThreads::instance().is_done_within(*call, time)) return false;
    call = nullptr;
    return true;
  };
}

}  // namespace simgpu

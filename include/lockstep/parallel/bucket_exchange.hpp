#pragma once

#include <coroutine>
#include <exception>
#include <utility>

#include "lockstep/parallel/tensor_work.hpp"

/// @file
/// Collectives and what lies between them, written as one function.

namespace lockstep::parallel {

/// A coroutine that exchanges something with the other ranks. It starts collectives, awaits them
/// with `co_await`, and goes on with the results; whoever runs it computes meanwhile.
///
///     BucketExchange halve(GradBucket& bucket) {
///       Tensor half = bucket.buffer().to(DType::bf16);
///       co_await bucket.all_reduce(half);
///       bucket.buffer().copy_(half);
///     }
///
/// `co_await` gives the collective's result and throws its failure, as TensorWork::wait does. A
/// reducer refuses a coroutine that ends with a collective of its bucket that it has not awaited.
/// Destroyed before its end, a coroutine leaves the memory of what it awaits alone until that is
/// done.
class [[nodiscard]] BucketExchange {
 public:
  struct promise_type;

  /// Nothing to do.
  BucketExchange() = default;
  BucketExchange(BucketExchange&& other) noexcept
      : coroutine_(std::exchange(other.coroutine_, nullptr)) {}
  BucketExchange& operator=(BucketExchange&& other) noexcept {
    std::swap(coroutine_, other.coroutine_);
    return *this;
  }
  ~BucketExchange() {
    if (coroutine_) coroutine_.destroy();
  }

  /// True once the coroutine has ended.
  bool is_done() const noexcept { return !coroutine_ || coroutine_.done(); }
  /// Runs it up to the next collective that it awaits, or to its end; the first call begins. On the
  /// CPU blocks until what it awaits is complete, on a GPU the calling thread's current stream
  /// waits. @throws what the coroutine does, which has ended then.
  inline void resume();

 private:
  explicit BucketExchange(std::coroutine_handle<promise_type> coroutine) : coroutine_(coroutine) {}

  std::coroutine_handle<promise_type> coroutine_;
};

/// What the compiler makes of `co_await` in a BucketExchange.
struct BucketExchange::promise_type {
  /// Suspends the coroutine until `resume`, which waits for the collective.
  struct Awaiter {
    TensorWork work;  ///< kept in the coroutine, and with it its memory
    bool await_ready() const noexcept { return false; }      ///< never: others run first
    void await_suspend(std::coroutine_handle<>) noexcept {}  ///< `resume` comes back
    Tensor await_resume() { return work.wait(); }            ///< the result
  };

  /// The handle of the coroutine.
  BucketExchange get_return_object() {
    return BucketExchange(std::coroutine_handle<promise_type>::from_promise(*this));
  }
  /// Nothing runs before `resume`.
  std::suspend_always initial_suspend() noexcept { return {}; }
  /// The handle destroys it.
  std::suspend_always final_suspend() noexcept { return {}; }
  /// The end.
  void return_void() noexcept {}
  /// `resume` throws it.
  void unhandled_exception() noexcept { failure = std::current_exception(); }
  /// Collectives are what can be awaited: from here on they belong to the coroutine's frame.
  Awaiter await_transform(TensorWork&& work) { return {std::move(work)}; }
  /// The same for one that has a name, of which nothing is left.
  Awaiter await_transform(TensorWork& work) { return {std::move(work)}; }

  std::exception_ptr failure;  ///< what the coroutine threw
};

/// See above.
inline void BucketExchange::resume() {
  if (is_done()) return;
  coroutine_.resume();
  if (coroutine_.done() && coroutine_.promise().failure)
    std::rethrow_exception(std::exchange(coroutine_.promise().failure, nullptr));
}

}  // namespace lockstep::parallel

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <boost/context/detail/fcontext.hpp>

/// @file
/// Fibers on pooled stacks: what a CUDA thread that waits is kept on.

namespace simgpu {

/// A stack and where its code goes on.
struct Fiber {
  boost::context::detail::fcontext_t context = nullptr;
};

/// The fibers of one OS thread. They live as long as the pool and are used again and again; a
/// fiber given back goes on from where it gave itself back.
class FiberPool {
 public:
  /// Of a fiber's stack.
  static constexpr std::size_t stack_kib = 252;

  using Body = void (*)(void* argument);

  /// Every fiber runs `body(argument)`, which never returns.
  FiberPool(Body body, void* argument);
  FiberPool(const FiberPool&) = delete;
  FiberPool& operator=(const FiberPool&) = delete;
  ~FiberPool();

  /// A fiber that waits to be given work: the one given back last, or a new one.
  Fiber& take();
  void give_back(Fiber& fiber) { idle_.push_back(&fiber); }

  /// Gives up what all fibers have begun: they wait to be given work, as new ones do. On the OS
  /// thread's own stack.
  void renew();

  /// Leaves the running fiber for another; returns when something switches back to it.
  void switch_to(Fiber& fiber);
  /// The fiber that runs; the OS thread's own stack counts as one.
  Fiber& current() const { return *current_; }
  Fiber& own_stack() { return own_; }

  /// True for addresses on the stack of any fiber.
  bool is_stack(std::uintptr_t address) const {
    return address - reinterpret_cast<std::uintptr_t>(stacks_) < stack_bytes_;
  }
  /// True for addresses in the guard below the stack of any fiber. Called in signal handlers.
  bool is_below_stack(std::uintptr_t address) const;
  std::size_t created() const { return fibers_.size(); }

 private:
  static void enter(boost::context::detail::transfer_t from);
  Fiber& create();
  void add_chunk(std::size_t number);
  void begin(std::size_t index);

  Body body_;
  void* argument_;
  Fiber own_;
  Fiber* current_ = &own_;
  Fiber* left_ = nullptr;  ///< the one that the last switch left
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  std::byte* stacks_ = nullptr;  ///< one behind another, in chunks that are opened as needed
  std::size_t stack_bytes_ = 0;  ///< of the open ones
};

}  // namespace simgpu

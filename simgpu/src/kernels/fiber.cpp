#include "kernels/fiber.hpp"

#include <algorithm>
#include <new>

#include <sys/mman.h>

namespace simgpu {
namespace {

namespace context = boost::context::detail;

constexpr std::size_t guard_bytes = 4096;
/// Only pages that are touched cost memory; reports are written on these stacks too.
constexpr std::size_t slot_bytes = FiberPool::stack_kib * 1024 + guard_bytes;
constexpr std::size_t stacks_per_chunk = 256, chunk_bytes = slot_bytes * stacks_per_chunk;
/// Addresses that all stacks lie in: those of 524,288 threads, twice what a device holds at once.
constexpr std::size_t most_chunks = 2048;
/// A guard makes two mappings of one, of which Linux allows 65,530 (vm.max_map_count): blocks of so
/// many threads as no ordinary kernel runs at once do without.
constexpr std::size_t guarded_chunks = 64;

/// Where the stacks of a chunk start differs, or all of them would compete for the same cache sets.
std::size_t stagger(std::size_t index) { return index % 61 * 64; }

std::byte* reserve_chunks() {
  void* const chunks = mmap(nullptr, chunk_bytes * most_chunks, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (chunks == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(chunks);
}

void open_chunk(std::byte* chunk, bool guarded) {
  if (mprotect(chunk, chunk_bytes, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  // An overflow meets the guard below its stack.
  for (std::size_t i = 0; guarded && i < stacks_per_chunk; ++i)
    mprotect(chunk + i * slot_bytes, guard_bytes, PROT_NONE);
}

}  // namespace

FiberPool::FiberPool(Body body, void* argument) : body_(body), argument_(argument) {}

FiberPool::~FiberPool() {
  if (stacks_ != nullptr) munmap(stacks_, chunk_bytes * most_chunks);
}

Fiber& FiberPool::take() {
  if (idle_.empty()) return create();
  Fiber& fiber = *idle_.back();
  idle_.pop_back();
  return fiber;
}

Fiber& FiberPool::create() {
  const std::size_t index = fibers_.size();
  if (index % stacks_per_chunk == 0) add_chunk(index / stacks_per_chunk);
  fibers_.push_back(std::make_unique<Fiber>());
  begin(index);
  return *fibers_.back();
}

void FiberPool::add_chunk(std::size_t number) {
  if (number == most_chunks) throw std::bad_alloc();
  if (stacks_ == nullptr) stacks_ = reserve_chunks();
  open_chunk(stacks_ + number * chunk_bytes, number < guarded_chunks);
  stack_bytes_ += chunk_bytes;
}

void FiberPool::begin(std::size_t index) {
  std::byte* const slot = stacks_ + index * slot_bytes;
  std::byte* const top = slot + slot_bytes - stagger(index);
  fibers_[index]->context =
      context::make_fcontext(top, slot_bytes - guard_bytes - stagger(index), &FiberPool::enter);
}

void FiberPool::renew() {
  idle_.clear();
  for (std::size_t index = 0; index < fibers_.size(); ++index) {
    begin(index);
    idle_.push_back(fibers_[index].get());
  }
}

void FiberPool::enter(context::transfer_t from) {
  auto* const pool = static_cast<FiberPool*>(from.data);
  pool->left_->context = from.fctx;
  pool->body_(pool->argument_);
}

void FiberPool::switch_to(Fiber& fiber) {
  left_ = current_;
  current_ = &fiber;
  const context::transfer_t from = context::jump_fcontext(fiber.context, this);
  left_->context = from.fctx;
}

bool FiberPool::is_below_stack(std::uintptr_t address) const {
  const std::uintptr_t at = address - reinterpret_cast<std::uintptr_t>(stacks_);
  return at < std::min(stack_bytes_, guarded_chunks * chunk_bytes) && at % slot_bytes < guard_bytes;
}

}  // namespace simgpu

#include "comm/shm/shm_executor.hpp"

#include <algorithm>
#include <utility>

#include "core/fnv_hash.hpp"
#include "lockstep/comm/errors.hpp"

namespace lockstep::comm::shm {
namespace {

// Of what `Signature::agrees_with` compares beside the label.
std::uint64_t digest_of(const Signature& call) {
  const bool reduces =
      call.kind == OperationKind::all_reduce || call.kind == OperationKind::reduce_scatter;
  const std::uint64_t words[] = {
      static_cast<std::uint64_t>(call.kind) << 32 | static_cast<std::uint64_t>(call.dtype) << 16 |
          (reduces ? static_cast<std::uint64_t>(call.reduction) : 0) << 8 | call.captured,
      call.kind == OperationKind::broadcast ? static_cast<std::uint64_t>(call.peer) : 0,
      call.sequence,
      static_cast<std::uint64_t>(call.count),
      call.counts_hash,
      call.id.owner,
      call.id.step,
      call.id.part};
  std::uint64_t hash = Signature::expected_magic;
  for (const std::uint64_t word : words) {  // each step can be undone, so no word gets lost
    hash = (hash ^ word) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 32;
  }
  return hash;
}

bool agree(const Digest& one, const Digest& other) {
  return one.call == other.call && (one.label == other.label || one.label == 0 || other.label == 0);
}

}  // namespace

ShmExecutor::ShmExecutor(std::unique_ptr<Window> window, int rank, std::string group,
                         bool check_signatures, std::vector<int> numbers)
    : window_(std::move(window)),
      rank_(rank),
      size_(window_->ranks()),
      group_(std::move(group)),
      check_signatures_(check_signatures),
      numbers_(std::move(numbers)),
      heap_(size_ > 1 ? window_->heap() : nullptr),
      waiting_(*window_),
      factors_(static_cast<std::size_t>(size_), 1.0) {}

void ShmExecutor::run(std::span<const Operation> operations, const host::Deadline& deadline) {
  waiting_.set_deadline(deadline);
  const auto is_pair = [](const Operation& operation) { return operation.is_point_to_point(); };
  if (std::ranges::any_of(operations, is_pair)) exchange_messages(operations);
  for (const Operation& operation : operations)
    if (!is_pair(operation)) run_collective(operation);
}

IntrusivePtr<Memory> ShmExecutor::allocate(std::size_t bytes) {
  return heap_ ? heap_->allocate(bytes) : nullptr;
}

// Another rank may have come late, and find all that it needs to write its sums.
void ShmExecutor::quiesce() {
  if (!heap_) return;
  heap_->close();
  if (offered_ && offered_->is_written)
    heap_->detach(offered_->data, static_cast<std::size_t>(offered_->size));
  offered_.reset();
}

void ShmExecutor::abort(const std::string& reason) noexcept {
  window_->abort(reason);
  for (int rank = 0; rank < size_; ++rank) {
    wake(window_->board(rank).steps);
    wake(window_->board(rank).bell);
  }
}

void ShmExecutor::check() {
  if (const char* reason = window_->abort_reason()) throw PeerFailure(reason);
}

std::unique_ptr<host::Executor> ShmExecutor::split(const SplitPlan& plan) {
  auto window = enter_window({plan.members, plan.place, plan.all_gather});
  if (!window) return nullptr;
  return std::make_unique<ShmExecutor>(std::move(window), plan.place, plan.name, check_signatures_);
}

// --- steps ---------------------------------------------------------------------------------------

// True if this rank offers its buffer to the others in the step that follows.
bool ShmExecutor::offer(const Operation& operation) {
  if (!may_run_in_place(operation)) return false;
  const Offer own = offer_of(operation);
  std::uint64_t& place = window_->board(rank_).places[(step_ + 1) & 1U];
  place = heap_->place_of(own.data, static_cast<std::size_t>(own.size), own.is_written);
  if (place == 0) return false;
  offered_ = own;
  return true;
}

// What this rank calls, for the step that follows. Last before it comes there: who waits looks at
// the same cache line, and takes it away.
void ShmExecutor::announce(const Operation& operation) {
  Window::Board& own = window_->board(rank_);
  const std::uint32_t place = (step_ + 1) & 1U;
  Signature& signature = own.signatures[place];
  signature = Signature(operation);
  own.digests[place] = {digest_of(signature), signature.label_hash, signature.factor};
  own.collectives.store(operation.sequence + 1, std::memory_order_release);
}

// Comes to the next step, and returns once all ranks have. What they read in the step before may
// then be written anew.
void ShmExecutor::meet() {
  ++step_;
  raise(window_->board(rank_).steps);
  const auto is_there = [&](int rank) {
    const std::uint32_t come = window_->board(rank).steps.value.load(std::memory_order_acquire);
    return static_cast<std::int32_t>(come - step_) >= 0;  // the counters wrap
  };
  const auto missing = [&] {
    std::vector<int> ranks;
    for (int rank = 0; rank < size_; ++rank)
      if (!is_there(rank)) ranks.push_back(rank);
    return ranks;
  };
  for (int rank = 0; rank < size_; ++rank)
    waiting_.until(
        window_->board(rank).steps, [&] { return is_there(rank); }, missing);
}

// All ranks have come to this collective: what lies in this rank's mailboxes from before it is
// never received. Of later messages of ranks that are ahead, the first piece says that they are
// later.
void ShmExecutor::require_received(const Operation& operation) {
  for (int sender = 0; sender < size_; ++sender) {
    const Window::Piece* const piece = next_piece(sender);
    if (!piece) continue;
    has_unreceived_ = piece->place <= operation.sequence;
    LOCKSTEP_CHECK(!has_unreceived_, Mismatch, "rank ", number_of(rank_), " of ", group_,
                   " has not received what rank ", number_of(sender), " sent it by ",
                   piece->signature.describe(), ", and is in a later ",
                   Signature(operation).describe(),
                   "; all ranks must make the same calls in the same order");
  }
}

// Every rank does the same with the same values, so all find a difference, or none.
void ShmExecutor::compare(const Operation& operation) {
  const auto digest = [&](int rank) -> const Digest& {
    return window_->board(rank).digests[step_ & 1U];
  };
  int labelled = 0;  // whoever has no label agrees with ranks that disagree with each other
  while (labelled + 1 < size_ && digest(labelled).label == 0) ++labelled;
  bool agreed = true;
  for (int rank = 0; rank < size_; ++rank) agreed &= agree(digest(labelled), digest(rank));
  if (operation.reduction.kind == ReduceKind::scaled_sum)
    for (int rank = 0; rank < size_; ++rank)
      factors_[static_cast<std::size_t>(rank)] = digest(rank).factor;
  if (!check_signatures_) return;
  if (agreed) return require_received(operation);
  std::vector<Signature> signatures;
  for (int rank = 0; rank < size_; ++rank)
    signatures.push_back(window_->board(rank).signatures[step_ & 1U]);
  require_agreement(signatures, group_);
}

}  // namespace lockstep::comm::shm

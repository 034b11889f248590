#include "comm/window/window_executor.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

#include "comm/host/fold.hpp"
#include "lockstep/comm/errors.hpp"

namespace lockstep::comm::window {
namespace {

constexpr auto piece_size = static_cast<std::int64_t>(Window::piece_bytes);

std::int64_t bytes_of(const Operation& operation, std::int64_t elements) {
  return elements * static_cast<std::int64_t>(size_of(operation.dtype));
}

bool reduces(const Operation& operation) {
  return operation.kind == OperationKind::all_reduce ||
         operation.kind == OperationKind::reduce_scatter;
}

void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace

/// A send or receive, and how much of it is done.
struct WindowExecutor::Message {
  const Operation* operation;
  std::int64_t done = 0;
  bool has_begun = false, has_ended = false;
};

WindowExecutor::WindowExecutor(std::unique_ptr<Window> window, int rank, int size,
                               std::string group, bool check_signatures)
    : window_(std::move(window)),
      rank_(rank),
      size_(size),
      group_(std::move(group)),
      check_signatures_(check_signatures),
      signatures_(static_cast<std::size_t>(size)),
      factors_(static_cast<std::size_t>(size), 1.0) {}

void WindowExecutor::run(std::span<const Operation> operations, const host::Deadline& deadline) {
  deadline_ = &deadline;
  exchange_messages(operations);
  for (const Operation& operation : operations)
    if (!operation.is_point_to_point()) run_collective(operation);
}

// `missing` tells which ranks are waited for.
template <class Done, class Missing>
void WindowExecutor::wait(Done done, Missing missing) {
  for (int polls = 0; !done(); ++polls) {
    if (const char* reason = window_->abort_reason()) throw PeerFailure(reason);
    if (deadline_->may_be_over())
      if (auto ranks = missing(); deadline_->is_over(ranks))
        throw host::TransferTimeout{std::move(ranks)};
    if (polls < 100)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

// Returns once all ranks are here.
void WindowExecutor::barrier() {
  ++arrivals_;
  window_->slot(rank_).arrivals.store(arrivals_);
  const auto absent = [&] {
    std::vector<int> ranks;
    for (int rank = 0; rank < size_; ++rank)
      if (window_->slot(rank).arrivals.load() < arrivals_) ranks.push_back(rank);
    return ranks;
  };
  wait([&] { return absent().empty(); }, absent);
}

// --- collectives ---------------------------------------------------------------------------------

void WindowExecutor::exchange_signatures(const Operation& operation) {
  window_->slot(rank_).signature = Signature(operation);
  barrier();
  for (int rank = 0; rank < size_; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    signatures_[i] = window_->slot(rank).signature;
    factors_[i] = signatures_[i].factor;
  }
  barrier();
  if (check_signatures_) require_agreement(signatures_, group_);
}

void WindowExecutor::run_collective(const Operation& operation) {
  exchange_signatures(operation);
  if (operation.kind == OperationKind::barrier) return;
  Bytes longest = 0;
  for (int rank = 0; rank < size_; ++rank) longest = std::max(longest, shown_by(operation, rank));
  for (Bytes begin = 0; begin < longest; begin += piece_size) {
    const Bytes end = std::min(longest, begin + piece_size);
    show(operation, begin, shown_by(operation, rank_));
    barrier();
    if (reduces(operation))
      reduce(operation, begin, end);
    else
      take(operation, begin, end);
    barrier();
  }
}

// How many bytes a rank shows to all.
WindowExecutor::Bytes WindowExecutor::shown_by(const Operation& operation, int rank) const {
  switch (operation.kind) {
    case OperationKind::all_gather: return size_of_part(operation, rank);
    case OperationKind::broadcast:
      return rank == operation.peer ? bytes_of(operation, operation.count) : 0;
    default: return bytes_of(operation, operation.count);
  }
}

WindowExecutor::Bytes WindowExecutor::size_of_part(const Operation& operation, int rank) const {
  if (operation.kind == OperationKind::all_reduce) return bytes_of(operation, operation.count);
  if (operation.counts.empty()) return bytes_of(operation, operation.count / size_);
  return bytes_of(operation, operation.counts[static_cast<std::size_t>(rank)]);
}

WindowExecutor::Bytes WindowExecutor::begin_of_part(const Operation& operation, int rank) const {
  Bytes begin = 0;
  if (operation.kind != OperationKind::all_reduce)
    for (int before = 0; before < rank; ++before) begin += size_of_part(operation, before);
  return begin;
}

void WindowExecutor::show(const Operation& operation, Bytes begin, Bytes total) {
  copy_bytes(window_->slot(rank_).piece, operation.input + begin,
             std::min(piece_size, total - begin));
}

// What this rank wants of the piece from `begin` to `end` of what each rank shows.
void WindowExecutor::take(const Operation& operation, Bytes begin, Bytes end) {
  for (int rank = 0; rank < size_; ++rank) {
    const std::byte* const piece = window_->slot(rank).piece;
    const Bytes shown = std::min(end, shown_by(operation, rank));
    if (operation.kind != OperationKind::all_to_all) {
      const Bytes place =
          operation.kind == OperationKind::all_gather ? begin_of_part(operation, rank) : 0;
      copy_bytes(operation.output + place + begin, piece, shown - begin);
      continue;
    }
    const Bytes own = begin_of_part(operation, rank_);
    const Bytes first = std::max(begin, own);
    const Bytes last = std::min(shown, own + size_of_part(operation, rank_));
    copy_bytes(operation.output + begin_of_part(operation, rank) + (first - own),
               piece + (first - begin), last - first);
  }
}

void WindowExecutor::reduce(const Operation& operation, Bytes begin, Bytes end) {
  const Bytes own = begin_of_part(operation, rank_);
  const Bytes first = std::max(begin, own);
  const Bytes last = std::min(end, own + size_of_part(operation, rank_));
  if (first >= last) return;
  std::vector<const std::byte*> sources;
  for (int rank = 0; rank < size_; ++rank)
    sources.push_back(window_->slot(rank).piece + (first - begin));
  host::fold(operation.dtype, operation.reduction.kind, {sources, factors_},
             operation.output + (first - own), (last - first) / bytes_of(operation, 1));
}

// --- sends and receives --------------------------------------------------------------------------

void WindowExecutor::exchange_messages(std::span<const Operation> operations) {
  std::vector<Message> messages;
  for (const Operation& operation : operations)
    if (operation.is_point_to_point()) messages.push_back({&operation});
  const auto unfinished = [&] {
    std::vector<int> ranks;
    for (const Message& message : messages)
      if (!message.has_ended) ranks.push_back(message.operation->peer);
    return ranks;
  };
  // Those of one pair go one after the other.
  const auto is_first = [&](const Message& message) {
    return std::ranges::none_of(std::span(messages.data(), &message), [&](const Message& earlier) {
      return !earlier.has_ended && earlier.operation->kind == message.operation->kind &&
             earlier.operation->peer == message.operation->peer;
    });
  };
  const auto advance_all = [&] {
    bool moved = true;
    while (std::exchange(moved, false))
      for (Message& message : messages)
        if (!message.has_ended && is_first(message)) moved |= advance(message);
    return std::ranges::all_of(messages, &Message::has_ended);
  };
  wait(advance_all, unfinished);
}

// Moves a piece if the mailbox allows it.
bool WindowExecutor::advance(Message& message) {
  const Operation& operation = *message.operation;
  const Bytes total = bytes_of(operation, operation.count);
  const Bytes rest = std::min(piece_size, total - message.done);
  const bool sends = operation.kind == OperationKind::send;
  Window::Mailbox& mailbox =
      sends ? window_->mailbox(rank_, operation.peer) : window_->mailbox(operation.peer, rank_);
  if (mailbox.is_full.load() == sends) return false;
  const Signature own(operation);
  if (sends) {
    mailbox.signature = own;
    copy_bytes(mailbox.piece, operation.input + message.done, rest);
  } else {
    LOCKSTEP_CHECK(message.has_begun || own.pairs_with(mailbox.signature), Mismatch,
                   describe_mismatch(group_, rank_, own, operation.peer, mailbox.signature));
    copy_bytes(operation.output + message.done, mailbox.piece, rest);
  }
  mailbox.is_full.store(sends);
  message.has_begun = true;
  message.done += rest;
  message.has_ended = message.done == total;
  return true;
}

// --- parts of the group --------------------------------------------------------------------------

std::unique_ptr<host::Executor> WindowExecutor::split(const SplitPlan& plan) {
  const int size = static_cast<int>(plan.members.size());
  std::unique_ptr<Window> window;
  if (size > 0 && plan.place == 0) window = std::make_unique<Window>(size);
  const auto names = plan.all_gather(window ? window->name() : "");
  if (size > 0 && !window)
    window = std::make_unique<Window>(names[static_cast<std::size_t>(plan.members[0])], size);
  plan.all_gather("");  // whoever made it keeps it until all have mapped it
  if (size == 0) return nullptr;
  return std::make_unique<WindowExecutor>(std::move(window), plan.place, size, plan.name,
                                          check_signatures_);
}

}  // namespace lockstep::comm::window

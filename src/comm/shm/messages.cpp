#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/shm/shm_executor.hpp"
#include "lockstep/comm/errors.hpp"

// Sends and receives: each pair of ranks has a mailbox of pieces, so the messages of all pairs go
// on side by side. The first piece of a message brings its signature.

namespace lockstep::comm::shm {

/// A send or receive, and how much of it is done.
struct ShmExecutor::Message {
  const Operation* operation;
  std::uint64_t place;  // the same at both ends: how many collectives come before
  Bytes total, done = 0;
  bool has_begun = false, has_ended = false;

  bool is_send() const { return operation->kind == OperationKind::send; }
  /// The same for those that go one after the other.
  std::pair<int, bool> line() const { return {operation->peer, is_send()}; }
};

void ShmExecutor::exchange_messages(std::span<const Operation> operations) {
  const std::uint64_t place = operations.front().sequence;  // all collectives of a batch come later
  std::vector<Message> messages;
  for (const Operation& operation : operations)
    if (operation.is_point_to_point())
      messages.push_back(
          {&operation, place, operation.count * static_cast<Bytes>(size_of(operation.dtype))});
  std::ranges::stable_sort(messages, {}, &Message::line);
  // What is left of each line, by rank.
  std::vector<std::span<Message>> lines;
  for (auto from = messages.begin(); from != messages.end();) {
    const auto to =
        std::ranges::upper_bound(from, messages.end(), from->line(), {}, &Message::line);
    lines.emplace_back(from, to);
    from = to;
  }
  const auto unfinished = [&] {
    std::vector<int> ranks;
    for (const auto& line : lines) ranks.push_back(line.front().operation->peer);
    ranks.erase(std::ranges::unique(ranks).begin(), ranks.end());
    return ranks;
  };
  const auto advance_all = [&] {
    for (auto& line : lines)
      while (!line.empty() && advance(line.front()))
        if (line.front().has_ended) line = line.subspan(1);
    std::erase_if(lines, [](const auto& line) { return line.empty(); });
    return lines.empty();
  };
  waiting_.until(window_->board(rank_).bell, advance_all, unfinished);
}

// Moves a piece if the mailbox allows it, and rings at the other end.
bool ShmExecutor::advance(Message& message) {
  const bool reached = has_passed(message);
  if (!(message.is_send() ? send_piece(message) : receive_piece(message))) {
    LOCKSTEP_CHECK(!reached, Mismatch, describe_passed(message));
    return false;
  }
  message.has_begun = true;
  message.has_ended = message.done == message.total;
  raise(window_->board(message.operation->peer).bell);
  return true;
}

bool ShmExecutor::send_piece(Message& message) {
  const Operation& operation = *message.operation;
  Window::Mailbox& mailbox = window_->mailbox(rank_, operation.peer);
  const std::uint32_t number = mailbox.written.load(std::memory_order_relaxed);
  if (number - mailbox.taken.load(std::memory_order_acquire) == Window::slots) return false;
  Window::Piece& piece = window_->piece(rank_, operation.peer, number);
  if (!message.has_begun) piece.signature = signature_of(message);
  piece.place = message.place;
  piece.size = static_cast<std::uint64_t>(
      std::min(message.total - message.done, static_cast<Bytes>(window_->piece_bytes())));
  if (piece.size > 0) std::memcpy(piece.data(), operation.input + message.done, piece.size);
  message.done += static_cast<Bytes>(piece.size);
  mailbox.written.store(number + 1);
  return true;
}

bool ShmExecutor::receive_piece(Message& message) {
  const Operation& operation = *message.operation;
  Window::Mailbox& mailbox = window_->mailbox(operation.peer, rank_);
  const std::uint32_t number = mailbox.taken.load(std::memory_order_relaxed);
  if (number == mailbox.written.load(std::memory_order_acquire)) return false;
  Window::Piece& piece = window_->piece(operation.peer, rank_, number);
  if (!message.has_begun) {
    const Signature own = signature_of(message);
    // A message that nobody received before a collective must not pass for one that came after.
    LOCKSTEP_CHECK(own.pairs_with(piece.signature) && piece.place == message.place, Mismatch,
                   describe_mismatch(group_, number_of(rank_), own, own.peer, piece.signature));
  }
  LOCKSTEP_CHECK(piece.size <= static_cast<std::uint64_t>(message.total - message.done),
                 CorruptData, "rank ", operation.peer, " of ", group_, " sent ", piece.size,
                 " bytes where ", message.total - message.done, " were due");
  if (piece.size > 0) std::memcpy(operation.output + message.done, piece.data(), piece.size);
  message.done += static_cast<Bytes>(piece.size);
  mailbox.taken.store(number + 1);
  return true;
}

int ShmExecutor::number_of(int rank) const {
  return numbers_.empty() ? rank : numbers_[static_cast<std::size_t>(rank)];
}

Signature ShmExecutor::signature_of(const Message& message) const {
  Signature signature(*message.operation);
  signature.peer = number_of(message.operation->peer);
  return signature;
}

// True if the other rank has come to the collective before which this message lies, or to a later
// one: all that it sends and receives before is done.
bool ShmExecutor::has_passed(const Message& message) const {
  return check_signatures_ && message.operation->peer != rank_ &&
         window_->board(message.operation->peer).collectives.load() > message.place;
}

std::string ShmExecutor::describe_passed(const Message& message) const {
  const Signature own = signature_of(message);
  return "rank " + std::to_string(number_of(rank_)) + " of " + group_ + " called " +
         own.describe() + ", but rank " + std::to_string(own.peer) +
         " is in a collective that comes after it; all ranks must make the same calls in the same "
         "order";
}

const Window::Piece* ShmExecutor::next_piece(int sender) const {
  const Window::Mailbox& mailbox = window_->mailbox(sender, rank_);
  const std::uint32_t number = mailbox.taken.load(std::memory_order_relaxed);
  return number == mailbox.written.load(std::memory_order_acquire)
             ? nullptr
             : &window_->piece(sender, rank_, number);
}

std::vector<host::Unreceived> ShmExecutor::unreceived() {
  std::vector<host::Unreceived> messages;
  for (int sender = 0; sender < size_; ++sender)
    if (const Window::Piece* const piece = next_piece(sender))
      messages.push_back({number_of(sender), piece->signature.describe()});
  return messages;
}

}  // namespace lockstep::comm::shm

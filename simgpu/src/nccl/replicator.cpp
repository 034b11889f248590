#include "nccl/replicator.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nccl/failure.hpp"

namespace simgpu::nccl {
namespace {

constexpr auto flush_timeout = std::chrono::seconds(5);
constexpr std::uint64_t max_message = std::uint64_t{1} << 33;

void wake_up(const Descriptor& wake) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake.get(), &one, sizeof one);
}

}  // namespace

Replicator::Replicator(int ranks, Segment& own, std::vector<Remote> remotes)
    : ranks_(ranks), own_(own), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) throw Failure(ncclSystemError, "cannot make an event descriptor");
  for (Remote& remote : remotes) {
    *remote.replica = Segment::replica(ranks);
    connections_.emplace_back().remote = std::move(remote);
  }
  thread_ = std::thread([this] { run(); });
}

Replicator::~Replicator() {
  stopping_ = true;
  wake_up(wake_);
  thread_.join();
}

// --- what this rank says
// --------------------------------------------------------------------------------------

void Replicator::queue(Connection& connection, const Frame& frame, const std::byte* data) {
  std::vector<std::byte> bytes(sizeof frame + frame.bytes);
  std::memcpy(bytes.data(), &frame, sizeof frame);
  if (frame.bytes > 0) std::memcpy(bytes.data() + sizeof frame, data, frame.bytes);
  {
    const std::lock_guard lock(mutex_);
    connection.output.push_back(std::move(bytes));
  }
  wake_up(wake_);
}

void Replicator::send_call(Channel channel, std::uint64_t number, const CallSlot& slot) {
  const Frame frame{Kind::call, channel, number, slot.bytes, slot.signature};
  for (Connection& connection : connections_)
    if (is_read_by(channel, connection.remote.rank))
      queue(connection, frame, own_.data(slot.offset));
}

void Replicator::send_release(int to, Channel channel, std::uint64_t number) {
  for (Connection& connection : connections_)
    if (connection.remote.rank == to)
      queue(connection, {Kind::release, channel, number, 0, {}}, nullptr);
}

void Replicator::send_presence(Presence presence) {
  for (Connection& connection : connections_)
    queue(connection, {Kind::presence, 0, static_cast<std::uint64_t>(presence), 0, {}}, nullptr);
}

bool Replicator::reaches(int rank) const {
  return std::ranges::any_of(
      connections_, [&](const Connection& connection) { return connection.remote.rank == rank; });
}

bool Replicator::is_broken(int rank) const {
  return std::ranges::any_of(connections_, [rank](const Connection& connection) {
    return connection.remote.rank == rank && connection.is_broken;
  });
}

bool Replicator::has_output() {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(connections_, [](const Connection& connection) {
    return !connection.is_broken && !connection.output.empty();
  });
}

// --- the thread
// -----------------------------------------------------------------------------------------------

void Replicator::run() {
  std::vector<pollfd> entries;
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  while (!stopping_ || (has_output() && std::chrono::steady_clock::now() < deadline)) {
    if (stopping_) deadline = std::min(deadline, std::chrono::steady_clock::now() + flush_timeout);
    entries.assign(1, {wake_.get(), POLLIN, 0});
    for (Connection& connection : connections_) {
      const std::lock_guard lock(mutex_);
      const auto events = static_cast<short>(connection.output.empty() ? POLLIN : POLLIN | POLLOUT);
      entries.push_back({connection.is_broken ? -1 : connection.remote.socket.get(), events, 0});
    }
    ::poll(entries.data(), entries.size(), 100);
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t drained = read(wake_.get(), &count, sizeof count);
    for (Connection& connection : connections_) {
      if (!connection.is_broken) flush(connection);
      if (!connection.is_broken) receive(connection);
    }
  }
}

void Replicator::flush(Connection& connection) {
  while (true) {
    const std::vector<std::byte>* bytes = nullptr;
    {
      const std::lock_guard lock(mutex_);  // only this thread takes elements away
      if (connection.output.empty()) return;
      bytes = &connection.output.front();
    }
    const ssize_t sent = ::send(connection.remote.socket.get(), bytes->data() + connection.sent,
                                bytes->size() - connection.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno != EAGAIN && errno != EINTR) connection.is_broken = true;
      return;
    }
    connection.sent += static_cast<std::size_t>(sent);
    if (connection.sent < bytes->size()) continue;
    const std::lock_guard lock(mutex_);
    connection.output.pop_front();
    connection.sent = 0;
  }
}

bool Replicator::receive_into(Connection& connection, void* room, std::size_t bytes,
                              std::size_t& received) {
  while (received < bytes) {
    const ssize_t got = recv(connection.remote.socket.get(), static_cast<char*>(room) + received,
                             bytes - received, MSG_DONTWAIT);
    if (got > 0) {
      received += static_cast<std::size_t>(got);
    } else {
      if (got == 0 || (errno != EAGAIN && errno != EINTR)) connection.is_broken = true;
      return false;
    }
  }
  return true;
}

void Replicator::receive(Connection& connection) {
  while (true) {
    const bool has_frame = connection.frame_received == sizeof(Frame);
    if (!receive_into(connection, &connection.frame, sizeof(Frame), connection.frame_received))
      return;
    if (!has_frame) begin_frame(connection);
    if (connection.is_broken) return;
    if (connection.frame.bytes > 0 &&
        !receive_into(connection, connection.remote.replica->data(connection.data_offset),
                      connection.frame.bytes, connection.data_received))
      return;
    end_frame(connection);
    connection.frame_received = connection.data_received = 0;
  }
}

void Replicator::begin_frame(Connection& connection) {
  const Frame& frame = connection.frame;
  const Channel channels = point_to_point(ranks_);
  if (frame.kind > Kind::presence || frame.bytes > max_message || frame.channel >= channels ||
      (frame.kind != Kind::call && frame.bytes > 0)) {
    connection.is_broken = true;  // it does not speak our language
    return;
  }
  if (frame.kind != Kind::call) return;
  Segment& replica = *connection.remote.replica;
  connection.data_offset = replica.allocate(frame.bytes, replica.slot(frame.channel, frame.number));
}

void Replicator::end_frame(Connection& connection) {
  const Frame& frame = connection.frame;
  if (frame.kind == Kind::release) {
    own_.slot(frame.channel, frame.number).readers.fetch_sub(1, std::memory_order_release);
  } else if (frame.kind == Kind::presence) {
    connection.remote.replica->presence().store(static_cast<Presence>(frame.number),
                                                std::memory_order_release);
  } else {
    CallSlot& slot = connection.remote.replica->slot(frame.channel, frame.number);
    slot.offset = connection.data_offset;
    slot.bytes = frame.bytes;
    slot.signature = frame.signature;
    slot.readers.store(1, std::memory_order_relaxed);
    slot.published.store(frame.number + 1, std::memory_order_release);
  }
}

}  // namespace simgpu::nccl

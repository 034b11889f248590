#include "comm/host/tree_exchange.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/comm/errors.hpp"

namespace lockstep::comm::host {
namespace {

// Room for whatever a rank may send instead, such as a small message to this rank alone.
constexpr std::size_t least_room = sizeof(Signature) + 8192;

std::size_t as_size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

}  // namespace

TreeExchange::TreeExchange(Transport& transport, std::string group, bool check_signatures,
                           std::size_t most_data)
    : transport_(transport),
      group_(std::move(group)),
      check_signatures_(check_signatures),
      tree_(transport.rank(), transport.size()),
      room_(std::max(least_room, sizeof(Report) + most_data)) {}

bool TreeExchange::run(const Operation& operation, std::uint64_t unreceived, const TreeData& data,
                       const WaitOptions& options) {
  report_ = {Signature(operation), unreceived, 1};
  const int rank = transport_.rank();
  up_.resize(sizeof(Report) + as_size(data.bytes_from(rank, tree_.end_of(rank))));
  down_.resize(std::max(least_room, verdict_bytes(data)));
  data.begin(up_.data() + sizeof(Report));
  if (!tree_.children().empty()) {
    receive_reports(options);
    for (const Incoming& message : in_) take_report(message, operation, data);
  }
  if (tree_.is_root())
    decide(data);
  else
    exchange_with_parent(operation, data, options);
  if (!tree_.children().empty()) hand_down(data, options);
  return verdict_.agrees != 0;
}

// A neighbour that is late may only wait for ranks behind it.
void TreeExchange::transfer(std::span<const Outgoing> out, std::span<Incoming> in,
                            const WaitOptions& options) {
  try {
    transport_.transfer(out, in, options);
  } catch (TransferTimeout& timeout) {
    timeout.may_wait_themselves = true;
    throw;
  } catch (PeerGone& gone) {
    gone.is_seen_by_few = true;
    throw;
  }
}

void TreeExchange::receive_reports(const WaitOptions& options) {
  rooms_.resize(room_ * tree_.children().size());
  in_.clear();
  for (const int child : tree_.children())
    in_.push_back({child, std::span(rooms_).subspan(in_.size() * room_, room_)});
  transfer({}, in_, options);
}

void TreeExchange::refuse(const Operation& operation, const Incoming& message) const {
  LOCKSTEP_CHECK(message.received >= sizeof(Signature), CorruptData, "rank ", message.peer, " of ",
                 group_, " sent ", message.received, " bytes where a signature of ",
                 sizeof(Signature), " was due");
  Signature theirs;
  std::memcpy(static_cast<void*>(&theirs), message.room.data(), sizeof theirs);
  throw Mismatch(
      describe_mismatch(group_, transport_.rank(), Signature(operation), message.peer, theirs));
}

// Labels count where there are any, so the one that travels is one with a label: then all ranks
// agree with it, or two of them differ.
void TreeExchange::take_report(const Incoming& message, const Operation& operation,
                               const TreeData& data) {
  Report theirs;
  if (message.received < sizeof theirs) refuse(operation, message);
  std::memcpy(static_cast<void*>(&theirs), message.room.data(), sizeof theirs);
  if (theirs.signature.magic != Signature::expected_magic || theirs.signature.is_point_to_point())
    refuse(operation, message);
  const bool agrees =
      theirs.agrees != 0 && (!check_signatures_ || report_.signature.agrees_with(theirs.signature));
  report_.unreceived += theirs.unreceived;
  if (!agrees) report_.agrees = 0;
  if (report_.agrees == 0) return;
  if (report_.signature.label_hash == 0) report_.signature = theirs.signature;
  const int end = tree_.end_of(message.peer);
  const std::size_t expected = as_size(data.bytes_from(message.peer, end));
  LOCKSTEP_CHECK(message.received == sizeof theirs + expected, comm::Mismatch, "rank ",
                 message.peer, " of ", group_, " sent ", message.received - sizeof theirs,
                 " bytes where ", expected, " were due, with ", theirs.signature.describe());
  data.take(up_.data() + sizeof theirs, message.room.data() + sizeof theirs, message.peer, end);
}

void TreeExchange::decide(const TreeData& data) {
  verdict_ = {};
  if (report_.agrees == 0 || report_.unreceived != 0) verdict_.agrees = 0;
  if (verdict_.agrees != 0)
    data.finish(up_.data() + sizeof(Report), down_.data() + sizeof(Verdict));
  std::memcpy(down_.data(), &verdict_, sizeof verdict_);
}

void TreeExchange::exchange_with_parent(const Operation& operation, const TreeData& data,
                                        const WaitOptions& options) {
  if (report_.agrees == 0) up_.resize(sizeof(Report));
  std::memcpy(up_.data(), &report_, sizeof report_);
  const Outgoing out{tree_.parent(), up_};
  Incoming in{tree_.parent(), down_};
  transfer({&out, 1}, {&in, 1}, options);
  if (in.received < sizeof verdict_) refuse(operation, in);
  std::memcpy(&verdict_, down_.data(), sizeof verdict_);
  if (verdict_.magic != Verdict::expected_magic) refuse(operation, in);
  LOCKSTEP_CHECK(verdict_.agrees == 0 || in.received == verdict_bytes(data), CorruptData, "rank ",
                 in.peer, " of ", group_, " sent ", in.received, " bytes where ",
                 verdict_bytes(data), " were due");
}

void TreeExchange::hand_down(const TreeData& data, const WaitOptions& options) {
  const std::size_t bytes = verdict_.agrees != 0 ? verdict_bytes(data) : sizeof verdict_;
  std::vector<Outgoing> out;
  for (const int child : tree_.children()) out.push_back({child, {down_.data(), bytes}});
  std::ranges::reverse(out);  // those with the most ranks behind them first
  transfer(out, {}, options);
}

std::size_t TreeExchange::verdict_bytes(const TreeData& data) const {
  return sizeof(Verdict) + as_size(data.result_bytes());
}

std::vector<std::vector<std::byte>> TreeExchange::take_buffers() {
  std::vector<std::vector<std::byte>> buffers;
  buffers.push_back(std::move(up_));
  buffers.push_back(std::move(down_));
  buffers.push_back(std::move(rooms_));
  return buffers;
}

}  // namespace lockstep::comm::host

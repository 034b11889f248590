#include "comm/signature_comparison.hpp"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

// A message should show all ranks; but one may hang elsewhere and never call.
constexpr auto grace_period = std::chrono::seconds(1);
constexpr int largest_group = 1 << 20;

// What precedes a group's name and a signature in a batch.
struct EntryHeader {
  std::int32_t rank = 0, size = 0;
  std::int32_t kind = 0, reserved = 0;
  std::int32_t from = 0, to = 0;
  std::uint64_t number = 0;
  std::uint64_t name_length = 0;
};

template <class T>
void append(std::string& batch, const T& value) {
  batch.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Reads a batch from its beginning.
class BatchReader {
 public:
  explicit BatchReader(std::string_view batch) : rest_(batch) {}
  bool done() const { return rest_.empty(); }

  std::string_view bytes(std::size_t count) {
    LOCKSTEP_CHECK(count <= rest_.size(), CorruptData, "a batch of signatures ends ",
                   count - rest_.size(), " bytes early");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  template <class T>
  T value() {
    T value;
    std::memcpy(static_cast<void*>(&value), bytes(sizeof value).data(), sizeof value);
    return value;
  }

 private:
  std::string_view rest_;
};

std::string list_of(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  constexpr std::size_t shown = 8;
  for (std::size_t i = 0; i < std::min(ranks.size(), shown); ++i)
    text += (i ? ", " : "") + std::to_string(ranks[i]);
  if (ranks.size() > shown) text += " and " + std::to_string(ranks.size() - shown) + " more";
  return text;
}

}  // namespace

// --- every rank
// -----------------------------------------------------------------------------------------------

void SignatureComparison::note(const std::string& group, int rank, int size,
                               const Signature& signature, std::string_view label) {
  if (compares_here_ && Signature::is_cut(label)) keep_label(signature, label);
  append_entry({.group = group, .number = signature.sequence}, rank, size, signature);
}

// What is late is reported a second after its call.
void SignatureComparison::keep_label(const Signature& signature, std::string_view label) {
  constexpr std::size_t most = 64;
  const std::lock_guard lock(noted_mutex_);
  const auto has_hash = [&](const auto& kept) { return kept.first == signature.label_hash; };
  if (std::ranges::any_of(long_labels_, has_hash)) return;
  if (long_labels_.size() == most) long_labels_.pop_front();
  long_labels_.emplace_back(signature.label_hash, label);
}

std::string SignatureComparison::whole_label_of(const Signature& signature) {
  const std::lock_guard lock(noted_mutex_);
  for (const auto& [hash, label] : long_labels_)
    if (hash == signature.label_hash) return label;
  return {};
}

void SignatureComparison::note_message(const std::string& group, int rank, int size,
                                       const Signature& signature, std::uint64_t number) {
  const bool is_sender = signature.kind == OperationKind::send;
  append_entry({group, Kind::message, is_sender ? rank : signature.peer,
                is_sender ? signature.peer : rank, number},
               rank, size, signature);
}

void SignatureComparison::declare(const std::string& group, int rank, int size,
                                  std::uint64_t subject, const std::string& end) {
  append_entry({.group = group, .kind = Kind::declaration, .number = subject}, rank, size,
               Signature({.kind = OperationKind::barrier, .label = end}));
  flush();
}

void SignatureComparison::append_entry(const Key& key, int rank, int size,
                                       const Signature& signature) {
  const EntryHeader header{.rank = rank,
                           .size = size,
                           .kind = static_cast<std::int32_t>(key.kind),
                           .from = key.from,
                           .to = key.to,
                           .number = key.number,
                           .name_length = key.group.size()};
  const std::size_t length = sizeof header + key.group.size() + sizeof signature;
  const std::lock_guard lock(noted_mutex_);
  if (noted_.empty() || noted_.back().size() + length > max_batch) noted_.emplace_back();
  std::string& batch = noted_.back();
  append(batch, header);
  batch += key.group;
  append(batch, signature);
}

void SignatureComparison::flush() {
  std::vector<std::string> batches;
  {
    const std::lock_guard lock(noted_mutex_);
    batches.swap(noted_);
  }
  for (std::string& batch : batches) send(std::move(batch));
  if (compares_here_) report_late();
}

void SignatureComparison::send(std::string batch) {
  if (compares_here_) return take(batch);
  const std::lock_guard lock(callbacks_mutex_);
  if (send_) send_(std::move(batch));
}

void SignatureComparison::close() {
  const std::lock_guard lock(callbacks_mutex_);
  send_ = nullptr;
  report_ = nullptr;
}

// --- rank 0
// ---------------------------------------------------------------------------------------------------

void SignatureComparison::take(std::string_view batch, int sender) {
  try {
    read(batch, sender);
  } catch (const CorruptData& error) {
    report(error.what());
  }
}

void SignatureComparison::read(std::string_view batch, int sender) {
  BatchReader reader(batch);
  while (!reader.done()) {
    const auto header = reader.value<EntryHeader>();
    const std::string group(reader.bytes(header.name_length));
    const auto signature = reader.value<Signature>();
    const auto is_member = [&](int rank) { return rank >= 0 && rank < header.size; };
    const auto kind = static_cast<Kind>(header.kind);
    LOCKSTEP_CHECK(
        header.size <= largest_group && is_member(header.rank) && is_member(header.from) &&
            is_member(header.to) && header.kind >= 0 && kind <= Kind::declaration,
        CorruptData, "a signature of rank ", header.rank, " in a group of ", header.size);
    add({group, kind, header.from, header.to, header.number},
        kind == Kind::message ? 2 : header.size, {header.rank, signature, sender});
  }
}

// Of a call that waits for those of other ranks: itself, and its share of what they wait in.
std::size_t SignatureComparison::bytes_of(const Key& key) {
  return sizeof(Call) + sizeof(std::pair<const Key, Collective>) + key.group.size();
}

// @param size number of calls that belong together
void SignatureComparison::add(const Key& key, int size, const Call& call) {
  Collective complete;
  {
    const std::lock_guard lock(pending_mutex_);
    std::size_t& bytes = pending_bytes_[call.sender];
    LOCKSTEP_CHECK(bytes + bytes_of(key) <= max_pending, CorruptData, "rank ", call.sender,
                   " has called so many operations that other ranks have not called, the last in ",
                   key.group, ", that their signatures take ", bytes, " bytes");
    bytes += bytes_of(key);
    const auto place = pending_.try_emplace(key).first;
    Collective& collective = place->second;
    std::vector<Call>& calls = collective.calls;
    if (calls.empty()) collective.first_call = Clock::now();
    calls.push_back(call);
    const Signature& first = calls.front().signature;
    if (calls.size() > 1)
      collective.disagrees |= key.kind == Kind::message ? !first.pairs_with(call.signature)
                                                        : !first.agrees_with(call.signature);
    // Labels count where both ranks give one: the first call to compare with is one that has.
    if (calls.front().signature.label_hash == 0) std::swap(calls.front(), calls.back());
    if (collective.calls.size() < static_cast<std::size_t>(size)) return;
    for (const Call& each : collective.calls) pending_bytes_[each.sender] -= bytes_of(key);
    complete = std::move(collective);
    pending_.erase(place);
  }
  if (complete.disagrees) report(describe(key, complete));
}

void SignatureComparison::report_late() {
  std::string message;
  {
    const std::lock_guard lock(pending_mutex_);
    for (const auto& [key, collective] : pending_)
      if (collective.disagrees && Clock::now() - collective.first_call > grace_period)
        message = describe(key, collective);
  }
  if (!message.empty()) report(message);
}

/// What to look at first where some ranks replay a captured step, and others do not.
std::string SignatureComparison::describe_replays(const Collective& collective) {
  std::vector<int> replaying, others;
  for (const Call& call : collective.calls)
    (call.signature.captured ? replaying : others).push_back(call.rank);
  if (replaying.empty() || others.empty()) return {};
  std::ranges::sort(replaying);
  std::ranges::sort(others);
  return detail::concat(list_of(replaying), replaying.size() == 1 ? " replays" : " replay",
                        " a captured step (StepGraph), ", list_of(others),
                        others.size() == 1 ? " does" : " do",
                        " not: shapes of inputs, and what else makes a step be captured anew, must "
                        "change on all ranks in the same step; ");
}

std::string SignatureComparison::describe(const Key& key, const Collective& collective) {
  if (key.kind == Kind::message) {
    const bool is_receive_first = collective.calls[0].signature.kind == OperationKind::receive;
    const Call& receive = collective.calls[is_receive_first ? 0 : 1];
    const Call& send = collective.calls[is_receive_first ? 1 : 0];
    return describe_mismatch(key.group, receive.rank, receive.signature, send.rank, send.signature);
  }
  // Ranks that agree are named together.
  std::vector<std::pair<const Signature*, std::vector<int>>> parties;
  for (const Call& call : collective.calls) {
    const auto party = std::ranges::find_if(
        parties, [&](const auto& other) { return other.first->agrees_with(call.signature); });
    if (party == parties.end())
      parties.emplace_back(&call.signature, std::vector{call.rank});
    else
      party->second.push_back(call.rank);
  }
  const bool is_end = key.kind == Kind::declaration;
  lockstep::detail::TextStream text;
  if (!is_end) text << describe_replays(collective);
  text << "the ranks of " << key.group
       << (is_end ? " end differently: " : " disagree on their next collective: ");
  for (auto& [signature, ranks] : parties) std::ranges::sort(ranks);
  std::ranges::sort(parties, {}, [](const auto& party) { return party.second.front(); });
  if (const auto& front = parties.front(), &back = parties.back(); !is_end)
    text << describe_cause(*front.first, list_of(front.second), *back.first, list_of(back.second));
  for (std::size_t i = 0; i < parties.size(); ++i) {
    const auto& [signature, ranks] = parties[i];
    text << (i ? ", " : "") << list_of(ranks) << (is_end ? " with " : " called ")
         << (is_end ? detail::concat('\'', signature->short_label(), '\'') : signature->describe());
  }
  if (is_end)
    text << "; all ranks must do the same";
  else
    text << describe_difference(*parties.front().first, *parties.back().first);
  for (const auto& [signature, ranks] : parties)
    if (const std::string label = whole_label_of(*signature); !label.empty()) {
      text << "; in full, of " << list_of(ranks) << ": '" << label << '\'';
      break;
    }
  return text.str();
}

void SignatureComparison::report(const std::string& message) {
  const std::lock_guard lock(callbacks_mutex_);
  if (const Report report = std::exchange(report_, nullptr)) report(message);
}

}  // namespace lockstep::comm

#include "comm/signature.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <sstream>
#include <utility>
#include <vector>

#include "comm/shortened.hpp"
#include "core/fnv_hash.hpp"
#include "lockstep/comm/errors.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

bool reduces(OperationKind kind) {
  return kind == OperationKind::all_reduce || kind == OperationKind::reduce_scatter;
}

bool has_root(OperationKind kind) { return kind == OperationKind::broadcast; }

// The rank whose signature most ranks share; the lowest on a tie. One that agrees with all, as it
// has no label, tells nothing.
std::size_t reference_rank(std::span<const Signature> by_rank) {
  std::size_t best = 0;
  std::ptrdiff_t most = 0;
  for (std::size_t i = 0; i < by_rank.size(); ++i) {
    const auto votes = std::ranges::count_if(
        by_rank, [&](const Signature& other) { return by_rank[i].agrees_with(other); });
    if (votes > most && votes < std::ssize(by_rank)) {
      most = votes;
      best = i;
    }
  }
  return best;
}

// What is left of a text without the first `front` and the last `back` characters.
std::string_view middle(std::string_view text, std::size_t front, std::size_t back) {
  return text.substr(front, text.size() - front - back);
}

// How many characters two texts have alike at their beginnings and, behind that, at their ends:
// whole words.
std::pair<std::size_t, std::size_t> common_ends(std::string_view a, std::string_view b) {
  const std::size_t shorter = std::min(a.size(), b.size());
  std::size_t front = 0, back = 0;
  while (front < shorter && a[front] == b[front]) ++front;
  while (front > 0 && a[front - 1] != ' ') --front;
  while (back < shorter - front && a[a.size() - 1 - back] == b[b.size() - 1 - back]) ++back;
  while (back > 0 && a[a.size() - back] != ' ') --back;
  return {front, back};
}

// What is shown of the words in which calls differ. Where those go on for longer, as behind a label
// that is cut, they differ at their beginning.
constexpr std::size_t most_of_a_difference = 120;

// True if the ranks are in different steps of one owner.
bool steps_differ(std::span<const Signature> by_rank) {
  return std::ranges::any_of(by_rank, [&](const Signature& other) {
    return other.id.owner == by_rank[0].id.owner && other.id.step != by_rank[0].id.step;
  });
}

}  // namespace

Signature::Signature(const Operation& operation)
    : sequence(operation.sequence),
      count(operation.count),
      counts_hash(
          operation.counts.empty()
              ? 0
              : lockstep::detail::fnv_hash(operation.counts.data(),
                                           operation.counts.size() * sizeof(operation.counts[0]))),
      label_hash(operation.label.empty()
                     ? 0
                     : lockstep::detail::fnv_hash(operation.label.data(), operation.label.size())),
      id(operation.id),
      factor(operation.reduction.factor),
      peer(operation.peer),
      kind(operation.kind),
      dtype(operation.dtype),
      reduction(operation.reduction.kind),
      captured(operation.captured) {
  if (is_cut(operation.label))
    set_label(shortened(operation.label, sizeof(label)));
  else
    set_label(operation.label);
}

void Signature::set_label(std::string_view text) {
  label_size = static_cast<std::uint8_t>(text.size());
  std::memcpy(label, text.data(), text.size());
}

bool Signature::agrees_with(const Signature& other) const {
  if (magic != other.magic || kind != other.kind || sequence != other.sequence) return false;
  if (id != other.id || captured != other.captured) return false;
  if (count != other.count || dtype != other.dtype || counts_hash != other.counts_hash)
    return false;
  if (reduces(kind) && reduction != other.reduction) return false;
  if (has_root(kind) && peer != other.peer) return false;
  return has_label_of(other);
}

bool Signature::has_label_of(const Signature& other) const {
  return label_hash == other.label_hash || label_hash == 0 || other.label_hash == 0;
}

bool Signature::pairs_with(const Signature& other) const {
  const auto is_pair = [](const Signature& sent, const Signature& received) {
    return sent.kind == OperationKind::send && received.kind == OperationKind::receive;
  };
  return magic == other.magic && (is_pair(*this, other) || is_pair(other, *this)) &&
         count == other.count && dtype == other.dtype && id == other.id && has_label_of(other);
}

std::string Signature::describe(std::string_view whole_label) const {
  lockstep::detail::TextStream out;
  if (magic != expected_magic || kind > OperationKind::barrier || dtype > DType::boolean ||
      reduction > ReduceKind::scaled_sum) {
    return "a message of unknown form";
  }
  out << name_of(kind);
  if (kind == OperationKind::send) out << " to rank " << peer;
  if (kind == OperationKind::receive) out << " from rank " << peer;
  out << " #" << sequence;
  if (kind != OperationKind::barrier) out << " of " << count << ' ' << dtype;
  if (reduces(kind)) out << " (" << reduction << ')';
  if (has_root(kind)) out << " from rank " << peer;
  if (captured) out << " in a captured step";
  if (!whole_label.empty()) out << " '" << whole_label << '\'';
  if (id != CollectiveId{})
    out << " [owner " << id.owner << ", step " << id.step << ", part " << id.part << ']';
  return out.str();
}

std::string_view Signature::short_label() const {
  return {label, std::min<std::size_t>(label_size, sizeof(label))};
}

std::string describe(const Signature& first, std::size_t operations, std::string_view label) {
  std::string text = first.describe(label);
  if (operations > 1) text += " and " + std::to_string(operations - 1) + " more of its batch";
  return text;
}

std::string describe_mismatch(const std::string& group, int rank, const Signature& own, int peer,
                              const Signature& theirs) {
  return "rank " + std::to_string(rank) + " of " + group + " called " + own.describe() +
         ", but rank " + std::to_string(peer) + " called " + theirs.describe();
}

std::string describe_cause(const Signature& one, const std::string& ranks, const Signature& other,
                           const std::string& other_ranks) {
  const std::string a = one.describe(), b = other.describe();
  auto [front, back] = common_ends(a, b);
  if (a == b || front == 0) return {};
  front = a.find_last_of(' ', front - 2) + 1;  // "lr 0.1" rather than "0.1"
  const auto words = [&, front = front, back = back](const std::string& text) {
    return shortened(middle(text, front, back), most_of_a_difference);
  };
  return detail::concat('"', words(a), "\" on ", ranks, ", \"", words(b), "\" on ", other_ranks,
                        "\n  ");
}

std::string describe_difference(const Signature& one, const Signature& other) {
  const std::string a = one.describe(), b = other.describe();
  const auto [front, back] = common_ends(a, b);
  const std::string_view words = middle(a, front, back), others = middle(b, front, back);
  std::string text;
  if (a != b && front > 0 && std::max(words.size(), others.size()) <= most_of_a_difference)
    text = detail::concat("; the difference: \"", words, "\" and \"", others, '"');
  Signature unlabelled = one;
  unlabelled.label_hash = 0;
  Signature resized = unlabelled;
  resized.count = other.count;
  if (one.kind == OperationKind::all_gather && one.count != other.count &&
      resized.agrees_with(other))
    return text +
           "; ranks gather equally many elements: where batches differ in size, drop the "
           "last one (drop_last), or pad them to the largest and mask what was added";
  return text + (unlabelled.agrees_with(other)
                     ? "; labels, which tell what led to a call, must be the same on all ranks"
                     : "; all ranks must make the same calls in the same order");
}

// Whoever has no label agrees with ranks that disagree with each other.
bool agree(std::span<const Signature> signatures) {
  const auto has_label = [](const Signature& signature) { return signature.label_hash != 0; };
  const auto labelled = std::ranges::find_if(signatures, has_label);
  const Signature& one = labelled == signatures.end() ? signatures.front() : *labelled;
  return std::ranges::all_of(signatures,
                             [&](const Signature& other) { return one.agrees_with(other); });
}

void require_agreement(std::span<const Signature> by_rank, const std::string& group) {
  if (agree(by_rank)) [[likely]]
    return;
  const std::size_t reference = reference_rank(by_rank);
  lockstep::detail::TextStream text;
  text << "rank " << reference << " called " << by_rank[reference].describe();
  std::size_t listed = 0, differing = 0, first = reference;
  for (std::size_t i = 0; i < by_rank.size(); ++i) {
    if (by_rank[reference].agrees_with(by_rank[i])) continue;
    if (differing++ == 0) first = i;
    if (listed++ < 8) text << ", rank " << i << " called " << by_rank[i].describe();
  }
  if (differing > listed) text << ", and " << differing - listed << " more";
  if (steps_differ(by_rank))
    text
        << "; a rank has left out a step that the others made, or made one more (a forward through "
           "the wrapper is one, unless a NoGradGuard keeps it from being recorded: evaluate under "
           "one)";
  text << describe_difference(by_rank[reference], by_rank[first]);
  const auto name = [](std::size_t rank) { return "rank " + std::to_string(rank); };
  throw Mismatch(detail::concat(
      "the ranks of ", group, " disagree on their next collective: ",
      describe_cause(by_rank[reference], name(reference), by_rank[first], name(first)),
      text.str()));
}

}  // namespace lockstep::comm

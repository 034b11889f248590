#include "lockstep/data/mixture_sampler.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "data/check_size.hpp"
#include "data/interleaving.hpp"
#include "data/signature.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/permutation.hpp"

namespace lockstep::data {
namespace {

using Numbers = std::vector<std::int64_t>;
constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();

// The weights without what they have in common.
Numbers reduced(Numbers weights, std::size_t sources) {
  LOCKSTEP_CHECK(weights.size() == sources, InvalidArgument, weights.size(), " weights for ",
                 sources, " sources; each source needs one");
  std::int64_t common = 0, sum = 0;
  for (const std::int64_t weight : weights) {
    LOCKSTEP_CHECK(weight >= 0, InvalidArgument, "a weight is ", weight,
                   "; use 0 for a source that is left out");
    common = std::gcd(common, weight);
  }
  LOCKSTEP_CHECK(common > 0, InvalidArgument,
                 "all weights are 0; at least one source needs a weight above that");
  for (std::int64_t& weight : weights) {
    weight /= common;
    LOCKSTEP_CHECK(weight <= MixtureSampler::longest_period - sum, InvalidArgument,
                   "the weights, divided by what they have in common (", common, "), add up to ",
                   "more than ", MixtureSampler::longest_period, "; round them to that");
    sum += weight;
  }
  return weights;
}

}  // namespace

// Samples from `first` on that follow the same weights.
struct MixtureSampler::Phase {
  std::int64_t first;
  Interleaving interleaving;
  Numbers counts;  // of each source before that

  std::int64_t count(std::size_t source, std::int64_t samples) const {
    return counts[source] + interleaving.count(source, samples - first);
  }
};

MixtureSampler::MixtureSampler(Numbers sizes, MixtureOptions options)
    : sizes_(std::move(sizes)), options_(std::move(options)) {
  LOCKSTEP_CHECK(!sizes_.empty(), InvalidArgument, "a mixture needs at least one source");
  for (const std::int64_t size : sizes_) {
    offsets_.push_back(total_);
    LOCKSTEP_CHECK(check_size(size) <= largest - total_, InvalidArgument,
                   "the sources have more samples than 64 bits can count");
    total_ += size;
  }
  LOCKSTEP_CHECK(options_.epoch_size >= 0, InvalidArgument, "epoch_size is ", options_.epoch_size,
                 "; use 0 for as many samples as all sources have, or more");
  if (options_.epoch_size == 0) options_.epoch_size = total_;
  begin_phase(0, options_.weights);
  for (const MixtureChange& change : options_.changes) begin_phase(change.first, change.weights);
}

void MixtureSampler::begin_phase(std::int64_t first, const Numbers& weights) {
  LOCKSTEP_CHECK(phases_.empty() || first > phases_.back()->first, InvalidArgument,
                 "weights change at sample ", first, " after they changed at ",
                 phases_.back()->first, "; give changes in the order of their first samples, ",
                 "which lie beyond 0");
  Numbers counts(sizes_.size());
  if (!phases_.empty())
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = phases_.back()->count(i, first);
  phases_.push_back(std::make_shared<const Phase>(
      Phase{first, Interleaving(reduced(weights, sizes_.size())), std::move(counts)}));
}

const MixtureSampler::Phase& MixtureSampler::phase_at(std::int64_t sample) const {
  const auto next =
      std::ranges::upper_bound(phases_, sample, {}, [](const auto& phase) { return phase->first; });
  return **std::prev(next);
}

std::int64_t MixtureSampler::count(std::size_t source, std::int64_t samples) const {
  LOCKSTEP_CHECK(source < sizes_.size() && samples >= 0, InvalidArgument, "source ", source,
                 " of a mixture of ", sizes_.size(), " in the first ", samples,
                 " samples; give a source from 0 on, and 0 samples or more");
  return phase_at(samples).count(source, samples);
}

// The number of samples before one of an epoch; beyond 64 bits, the largest number.
std::int64_t MixtureSampler::run_position(std::uint64_t epoch, std::int64_t first) const {
  const std::int64_t most = (largest - std::max<std::int64_t>(first, 0)) / size();
  if (epoch > static_cast<std::uint64_t>(most)) return largest;
  return static_cast<std::int64_t>(epoch) * size() + first;
}

void MixtureSampler::indices(std::uint64_t epoch, std::int64_t first,
                             std::span<std::int64_t> out) const {
  const std::int64_t begin = run_position(epoch, first);
  LOCKSTEP_CHECK(std::ssize(out) <= largest - begin, InvalidArgument, "epoch ", epoch, " of ",
                 size(), " samples lies beyond what 64 bits can count");
  std::vector<std::vector<std::size_t>> places(sizes_.size());  // in `out`, of each source
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t sample = begin + static_cast<std::int64_t>(i);
    const Phase& phase = phase_at(sample);
    places[phase.interleaving.source(sample - phase.first)].push_back(i);
  }
  Numbers drawn;
  for (std::size_t source = 0; source < places.size(); ++source) {
    drawn.resize(places[source].size());
    draw(source, count(source, begin), drawn);
    for (std::size_t i = 0; i < drawn.size(); ++i) out[places[source][i]] = drawn[i];
  }
}

// What a source gives after `first` samples of it.
void MixtureSampler::draw(std::size_t source, std::int64_t first,
                          std::span<std::int64_t> out) const {
  const std::int64_t size = sizes_[source];
  while (!out.empty()) {
    const std::int64_t pass = first / size, begin = first % size;
    const std::int64_t count = std::min(std::ssize(out), size - begin);
    // Numbers of passes begin again at 0 where an index could not hold them.
    const std::int64_t offset = pass % (largest / total_) * total_ + offsets_[source];
    const Permutation order(size, options_.seed + source, static_cast<std::uint64_t>(pass));
    for (std::int64_t i = begin; i < begin + count; ++i)
      out[static_cast<std::size_t>(i - begin)] = offset + (options_.shuffle ? order(i) : i);
    first += count;
    out = out.subspan(static_cast<std::size_t>(count));
  }
}

std::uint64_t MixtureSampler::signature_before(std::int64_t sample) const {
  std::uint64_t signature = signature_of("mixture", size(), options_.shuffle, options_.seed);
  for (const std::int64_t each : sizes_) signature = signature_of("of", signature, each);
  for (const auto& phase : phases_) {
    if (phase->first >= sample) break;
    signature = signature_of("from", signature, phase->first);
    for (const std::int64_t weight : phase->interleaving.weights())
      signature = signature_of("weight", signature, weight);
  }
  return signature;
}

std::uint64_t MixtureSampler::order_signature() const { return signature_before(largest); }

std::uint64_t MixtureSampler::signature_up_to(std::uint64_t epoch, std::int64_t samples) const {
  return signature_before(run_position(epoch, samples));
}

}  // namespace lockstep::data

#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "comm/host/fold.hpp"
#include "comm/random_buffer.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/dtype.hpp"

/// @file
/// Random operations of a group, compared with `fold` over what all ranks hold: every rank draws
/// the same operations, and knows the others' values.

namespace lockstep::comm {

/// Draws operations, starts them, and checks what they leave.
class RandomOperations {
 public:
  struct Options {
    std::int64_t longest = 20'000;  ///< elements that most arrays have at most; some have 20 times
    int in_flight = 4;              ///< operations that are started before any is waited for
    bool splits = true;
  };

  RandomOperations(Communicator& group, unsigned seed, Options options)
      : group_(group), options_(options), random_(seed), seed_(seed) {}

  /// All of them, also after one that went wrong: the other ranks wait for it.
  /// @return what was wrong first, or nothing.
  std::string run(int operations) {
    for (number_ = 0; number_ < operations; ++number_) {
      start_one();
      if (static_cast<int>(pending_.size()) >= options_.in_flight) finish();
    }
    finish();
    return error_;
  }

 private:
  using Bytes = std::vector<std::byte>;
  using BufferPtr = std::shared_ptr<RandomBuffer>;
  struct Pending {
    Work work;
    std::vector<BufferPtr> buffers;
    std::function<void()> check;
  };
  struct Call {
    DType dtype = DType::f32;
    ReduceKind kind = ReduceKind::sum;
    bool has_nan = false;
    int number = 0;
  };

  int draw(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }
  auto ranks() const { return static_cast<std::size_t>(group_.size()); }

  // --- values: few small numbers, exact in any order of sums ---------------------------------

  template <class T>
  static T value_of(const Call& call, unsigned seed, int rank, std::int64_t index) {
    std::uint64_t hash = seed * 0x9E3779B97F4A7C15U + static_cast<std::uint64_t>(call.number);
    hash = (hash ^ static_cast<std::uint64_t>(rank)) * 0xBF58476D1CE4E5B9U;
    hash = (hash ^ static_cast<std::uint64_t>(index)) * 0x94D049BB133111EBU;
    hash ^= hash >> 31;
    if constexpr (!std::is_integral_v<T>)
      if (call.has_nan && hash % 997 == 0) return static_cast<T>(std::nanf(""));
    const auto small = static_cast<float>(hash % 4);
    if (call.kind == ReduceKind::product) return static_cast<T>(hash % 64 == 0 ? 2.0F : 1.0F);
    if constexpr (std::is_same_v<T, std::uint8_t>) return static_cast<T>(small);
    return static_cast<T>(small - 2);
  }
  void fill(const Call& call, int rank, std::byte* to, std::int64_t count) const {
    dispatch_numeric(call.dtype, "random operations", [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (std::int64_t i = 0; i < count; ++i)
        reinterpret_cast<T*>(to)[i] = value_of<T>(call, seed_, rank, i);
    });
  }
  Bytes values(const Call& call, int rank, std::int64_t count) const {
    Bytes bytes(static_cast<std::size_t>(count) * size_of(call.dtype));
    fill(call, rank, bytes.data(), count);
    return bytes;
  }
  Bytes reduced(const Call& call, std::int64_t count) const {
    std::vector<Bytes> all;
    std::vector<const std::byte*> sources;
    std::vector<double> factors;
    for (int rank = 0; rank < group_.size(); ++rank) {
      all.push_back(values(call, rank, count));
      factors.push_back(factor_of(rank));
    }
    for (const Bytes& one : all) sources.push_back(one.data());
    Bytes result(all[0].size());
    host::fold(call.dtype, call.kind, {sources, factors}, result.data(), count);
    return result;
  }
  static double factor_of(int rank) { return rank % 3 == 0 ? 0.5 : 2.0; }
  ReduceOp reduction_of(const Call& call) const {
    return {call.kind, call.kind == ReduceKind::scaled_sum ? factor_of(group_.rank()) : 1.0};
  }

  // NaNs are alike, whatever their bits.
  static std::int64_t first_wrong(DType dtype, const std::byte* found, const std::byte* expected,
                                  std::int64_t count) {
    std::int64_t wrong = -1;
    dispatch_numeric(dtype, "random operations", [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (std::int64_t i = 0; i < count && wrong < 0; ++i) {
        const T a = reinterpret_cast<const T*>(found)[i],
                b = reinterpret_cast<const T*>(expected)[i];
        if (std::memcmp(&a, &b, sizeof a) == 0) continue;
        if constexpr (!std::is_integral_v<T>)
          if (std::isnan(static_cast<double>(static_cast<float>(a))) &&
              std::isnan(static_cast<double>(static_cast<float>(b))))
            continue;
        wrong = i;
      }
    });
    return wrong;
  }
  void expect(const std::string& what, DType dtype, RandomBuffer& buffer, const std::byte* found,
              const std::byte* expected, std::int64_t count) {
    const std::int64_t wrong = first_wrong(dtype, found, expected, count);
    std::ostringstream text;
    text << "rank " << group_.rank() << " of " << group_.size() << ", seed " << seed_ << ", "
         << what << ": ";
    if (wrong >= 0) error_ = text.str() + "element " + std::to_string(wrong) + " is wrong";
    if (!buffer.is_guard_whole()) error_ = text.str() + "written outside the buffer";
  }
  std::string describe(const char* name, const Call& call, std::int64_t count) const {
    std::ostringstream text;
    text << name << " #" << call.number << " of " << count << ' ' << call.dtype << " (" << call.kind
         << ')';
    return text.str();
  }

  // --- what is drawn --------------------------------------------------------------------------

  Call draw_call(bool reduces) {
    constexpr DType dtypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16,
                                DType::i64, DType::i32, DType::u8};
    constexpr ReduceKind kinds[] = {ReduceKind::sum, ReduceKind::average, ReduceKind::min,
                                    ReduceKind::max, ReduceKind::product, ReduceKind::scaled_sum};
    Call call;
    call.number = number_;
    call.dtype = dtypes[draw(7)];
    call.kind = kinds[draw(6)];
    if (!reduces || (call.kind == ReduceKind::scaled_sum && !is_floating(call.dtype)))
      call.kind = ReduceKind::sum;
    call.has_nan = draw(3) == 0;
    return call;
  }
  std::int64_t draw_count() {
    switch (draw(8)) {
      case 0: return 0;
      case 1: return 1;
      case 2: return draw(100);
      case 3: return 20 * draw(static_cast<int>(options_.longest));
      default: return draw(static_cast<int>(options_.longest));
    }
  }
  std::vector<std::int64_t> draw_counts() {
    std::vector<std::int64_t> counts(ranks(), draw_count() / group_.size());
    if (draw(2) == 0)
      for (std::int64_t& count : counts) count = draw(4) == 0 ? draw_count() / 2 : draw(50);
    return counts;
  }
  // Of each rank: all in the group's memory, none, or each as it likes.
  RandomBuffer::Place draw_place() {
    using Place = RandomBuffer::Place;
    const int mode = draw(4);
    std::vector<int> of_ranks;
    for (std::size_t rank = 0; rank < ranks(); ++rank) of_ranks.push_back(draw(4));
    const int own = of_ranks[static_cast<std::size_t>(group_.rank())];
    if (mode == 0) return static_cast<Place>(own);
    if (mode == 1) return Place::process;
    return own % 2 == 0 ? Place::group_alone : Place::group_behind_a_page;
  }

  void start_one() {
    switch (draw(8)) {
      case 0: return start_reduce_scatter();
      case 1: return start_all_gather();
      case 2: return start_broadcast();
      case 3: return start_all_to_all();
      case 4: return start_messages();
      case 5:
        if (draw(8) == 0) return run_in_parts();
        [[fallthrough]];
      default: return start_all_reduce();
    }
  }

  void start_all_reduce() {
    const Call call = draw_call(true);
    const std::int64_t count = draw_count();
    const auto place = draw_place();
    const auto buffer = std::make_shared<RandomBuffer>(group_, place, count, call.dtype);
    fill(call, group_.rank(), buffer->data(), count);
    Work work = group_.all_reduce(buffer->buffer(), reduction_of(call));
    pending_.push_back({work, {buffer}, [=, this] {
                          expect(describe("all_reduce", call, count), call.dtype, *buffer,
                                 buffer->data(), reduced(call, count).data(), count);
                        }});
  }

  void start_reduce_scatter() {
    const Call call = draw_call(true);
    const auto counts = draw_counts();
    const auto place = draw_place();
    const bool is_in_place = draw(2) == 0;
    const std::int64_t total = sum(counts, ranks()), begin = sum(counts, own_index()),
                       own = counts[own_index()];
    const auto input = std::make_shared<RandomBuffer>(group_, place, total, call.dtype);
    const auto output = std::make_shared<RandomBuffer>(group_, place, own, call.dtype);
    fill(call, group_.rank(), input->data(), total);
    std::byte* const to =
        is_in_place ? input->data() + begin * static_cast<std::int64_t>(size_of(call.dtype))
                    : output->data();
    Work work =
        group_.reduce_scatter(input->constant(), {to, own, call.dtype}, reduction_of(call), counts);
    pending_.push_back(
        {work, {input, output}, [=, this] {
           const auto size = static_cast<std::int64_t>(size_of(call.dtype));
           const Bytes all = reduced(call, total);
           const std::string what = describe("reduce_scatter", call, total);
           expect(what, call.dtype, *output, to, all.data() + begin * size, own);
           const Bytes mine = values(call, group_.rank(), total);
           expect(what + " before", call.dtype, *input, input->data(), mine.data(), begin);
           if (!is_in_place)
             expect(what + " input", call.dtype, *input, input->data(), mine.data(), total);
         }});
  }

  void start_all_gather() {
    const Call call = draw_call(false);
    const auto counts = draw_counts();
    const auto place = draw_place();
    const bool is_in_place = draw(2) == 0;
    const std::int64_t total = sum(counts, ranks()), begin = sum(counts, own_index()),
                       own = counts[own_index()];
    const auto input = std::make_shared<RandomBuffer>(group_, place, own, call.dtype);
    const auto output = std::make_shared<RandomBuffer>(group_, place, total, call.dtype);
    std::byte* const from =
        is_in_place ? output->data() + begin * static_cast<std::int64_t>(size_of(call.dtype))
                    : input->data();
    fill(call, group_.rank(), from, own);
    Work work = group_.all_gather({from, own, call.dtype}, output->buffer(), counts);
    pending_.push_back({work, {input, output}, [=, this] {
                          Bytes all;
                          for (int rank = 0; rank < group_.size(); ++rank) {
                            const Bytes part =
                                values(call, rank, counts[static_cast<std::size_t>(rank)]);
                            all.insert(all.end(), part.begin(), part.end());
                          }
                          expect(describe("all_gather", call, total), call.dtype, *output,
                                 output->data(), all.data(), total);
                          expect(describe("all_gather", call, total) + " input", call.dtype, *input,
                                 from, values(call, group_.rank(), own).data(), own);
                        }});
  }

  void start_broadcast() {
    const Call call = draw_call(false);
    const std::int64_t count = draw_count();
    const auto place = draw_place();
    const int root = draw(group_.size());
    const auto buffer = std::make_shared<RandomBuffer>(group_, place, count, call.dtype);
    fill(call, group_.rank(), buffer->data(), count);
    Work work = group_.broadcast(buffer->buffer(), root);
    pending_.push_back({work, {buffer}, [=, this] {
                          expect(describe("broadcast", call, count), call.dtype, *buffer,
                                 buffer->data(), values(call, root, count).data(), count);
                        }});
  }

  void start_all_to_all() {
    const Call call = draw_call(false);
    const std::int64_t part = draw_count() / group_.size(), total = part * group_.size();
    const auto place = draw_place();
    const auto input = std::make_shared<RandomBuffer>(group_, place, total, call.dtype);
    const auto output = std::make_shared<RandomBuffer>(group_, place, total, call.dtype);
    fill(call, group_.rank(), input->data(), total);
    Work work = group_.all_to_all(input->constant(), output->buffer());
    pending_.push_back({work, {input, output}, [=, this] {
                          const auto size = static_cast<std::int64_t>(size_of(call.dtype));
                          Bytes all;
                          for (int rank = 0; rank < group_.size(); ++rank) {
                            const Bytes theirs = values(call, rank, total);
                            const auto begin = theirs.begin() + group_.rank() * part * size;
                            all.insert(all.end(), begin, begin + part * size);
                          }
                          expect(describe("all_to_all", call, total), call.dtype, *output,
                                 output->data(), all.data(), total);
                        }});
  }

  // A ring, several messages to each; sometimes with a sum behind them in the same batch.
  void start_messages() {
    if (group_.size() < 2) return;
    const Call call = draw_call(false);
    const int shift = 1 + draw(group_.size() - 1), messages = 1 + draw(3);
    const bool also_sums = draw(2) == 0;
    const int to = (group_.rank() + shift) % group_.size(),
              from = (group_.rank() + group_.size() - shift) % group_.size();
    std::vector<std::int64_t> counts;
    std::vector<BufferPtr> sent, received;
    for (int i = 0; i < messages; ++i) {
      counts.push_back(draw_count());
      const auto place = draw_place();
      sent.push_back(std::make_shared<RandomBuffer>(group_, place, counts.back(), call.dtype));
      received.push_back(std::make_shared<RandomBuffer>(group_, place, counts.back(), call.dtype));
      fill(call, group_.rank(), sent.back()->data(), counts.back());
    }
    const std::int64_t summed = draw_count();
    const auto sum_buffer =
        std::make_shared<RandomBuffer>(group_, draw_place(), summed, call.dtype);
    fill(call, group_.rank(), sum_buffer->data(), summed);
    Work work = group_.batch([&] {
      if (also_sums) group_.all_reduce(sum_buffer->buffer());
      for (const auto& one : sent) group_.send(one->constant(), to);
      for (const auto& one : received) group_.receive(one->buffer(), from);
    });
    std::vector<BufferPtr> all = sent;
    all.insert(all.end(), received.begin(), received.end());
    all.push_back(sum_buffer);
    pending_.push_back(
        {work, all, [=, this] {
           for (std::size_t i = 0; i < received.size(); ++i)
             expect(describe("receive", call, counts[i]), call.dtype, *received[i],
                    received[i]->data(), values(call, from, counts[i]).data(), counts[i]);
           if (also_sums)
             expect(describe("all_reduce of a batch", call, summed), call.dtype, *sum_buffer,
                    sum_buffer->data(), reduced(call, summed).data(), summed);
         }});
  }

  // Other groups at work meanwhile: what is pending goes on.
  void run_in_parts() {
    if (!options_.splits) return;
    const int colors = 1 + draw(3);
    const auto seed = static_cast<unsigned>(random_());
    const CommunicatorPtr part = group_.split(group_.rank() % colors, draw(2) ? group_.rank() : 0);
    start_all_reduce();
    RandomOperations operations(*part, seed, {options_.longest / 4 + 1, options_.in_flight, false});
    if (const std::string error = operations.run(5); !error.empty()) error_ = "part: " + error;
  }

  std::size_t own_index() const { return static_cast<std::size_t>(group_.rank()); }
  static std::int64_t sum(const std::vector<std::int64_t>& counts, std::size_t end) {
    std::int64_t total = 0;
    for (std::size_t i = 0; i < end; ++i) total += counts[i];
    return total;
  }
  void finish() {
    for (Pending& one : pending_) {
      one.work.wait();
      if (error_.empty()) one.check();
    }
    pending_.clear();
  }

  Communicator& group_;
  Options options_;
  std::minstd_rand random_;
  unsigned seed_;
  int number_ = 0;
  std::vector<Pending> pending_;
  std::string error_;
};

}  // namespace lockstep::comm

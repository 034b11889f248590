#include "comm/arguments.hpp"

#include <cmath>
#include <numeric>

#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

std::int64_t bytes_of(const ConstBuffer& buffer) {
  return buffer.count * static_cast<std::int64_t>(size_of(buffer.dtype));
}

bool overlap(const ConstBuffer& one, const ConstBuffer& other) {
  const auto begin = [](const ConstBuffer& buffer) {
    return reinterpret_cast<std::uintptr_t>(buffer.data);
  };
  const auto end = [&](const ConstBuffer& buffer) {
    return begin(buffer) + static_cast<std::uintptr_t>(bytes_of(buffer));
  };
  return one.count > 0 && other.count > 0 && begin(one) < end(other) && begin(other) < end(one);
}

}  // namespace

void check_buffer(const CallSite& site, const ConstBuffer& buffer) {
  LOCKSTEP_CHECK(buffer.count >= 0, InvalidArgument, site.call,
                 ": count must not be negative, got ", buffer.count);
  LOCKSTEP_CHECK(buffer.data || buffer.count == 0, InvalidArgument, site.call, ": ", buffer.count,
                 " elements at a null pointer");
}

void check_rank(const CallSite& site, const char* what, int rank) {
  LOCKSTEP_CHECK(rank >= 0 && rank < site.size, InvalidArgument, site.call, ": ", what,
                 " must be 0 to ", site.size - 1, ", got ", rank);
}

void check_other_rank(const CallSite& site, const char* what, int rank, int own) {
  check_rank(site, what, rank);
  LOCKSTEP_CHECK(rank != own, InvalidArgument, site.call, ": ", what, " ", rank,
                 ", of a group of size ", site.size,
                 ", is this rank itself; copy the elements, which needs no communicator");
}

void check_reduction(const CallSite& site, DType dtype, ReduceOp reduction) {
  LOCKSTEP_CHECK(dtype != DType::boolean, Unsupported, site.call,
                 ": dtype bool has no arithmetic; use u8 with min or max");
  if (reduction.kind != ReduceKind::scaled_sum) return;
  LOCKSTEP_CHECK(is_floating(dtype), Unsupported, site.call,
                 ": scaled_sum needs a floating dtype, got ", dtype);
  LOCKSTEP_CHECK(std::isfinite(reduction.factor), InvalidArgument, site.call,
                 ": the factor of scaled_sum must be finite, got ", reduction.factor);
}

std::vector<std::int64_t> check_parts(const CallSite& site, const ConstBuffer& part, int rank,
                                      const ConstBuffer& whole,
                                      std::span<const std::int64_t> counts) {
  check_buffer(site, part);
  check_buffer(site, whole);
  LOCKSTEP_CHECK(part.dtype == whole.dtype, InvalidArgument, site.call, ": the part is ",
                 part.dtype, " but the whole is ", whole.dtype);
  std::vector<std::int64_t> parts(counts.begin(), counts.end());
  if (parts.empty()) parts.assign(static_cast<std::size_t>(site.size), part.count);
  LOCKSTEP_CHECK(parts.size() == static_cast<std::size_t>(site.size), InvalidArgument, site.call,
                 ": ", parts.size(), " counts for ", site.size, " ranks");
  for (const std::int64_t count : parts)
    LOCKSTEP_CHECK(count >= 0, InvalidArgument, site.call, ": a part of ", count, " elements");
  const std::int64_t total = std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
  const std::int64_t own = parts[static_cast<std::size_t>(rank)];
  LOCKSTEP_CHECK(part.count == own && whole.count == total, InvalidArgument, site.call,
                 ": this rank's part needs ", own, " elements and the whole ", total, ", got ",
                 part.count, " and ", whole.count);
  const std::int64_t before = std::accumulate(parts.begin(), parts.begin() + rank, std::int64_t{0});
  const bool is_in_place =
      part.data == static_cast<const std::byte*>(whole.data) +
                       before * static_cast<std::int64_t>(size_of(whole.dtype));
  LOCKSTEP_CHECK(is_in_place || !overlap(part, whole), InvalidArgument, site.call,
                 ": this rank's part lies over the whole, but not in its place, which is element ",
                 before, " of the whole; use that place or memory apart from the whole");
  return parts;
}

void check_all_to_all(const CallSite& site, const ConstBuffer& input, const ConstBuffer& output) {
  check_buffer(site, input);
  check_buffer(site, output);
  LOCKSTEP_CHECK(input.dtype == output.dtype && input.count == output.count, InvalidArgument,
                 site.call, ": input is ", input.count, ' ', input.dtype, ", output ", output.count,
                 ' ', output.dtype, "; they must be alike");
  LOCKSTEP_CHECK(input.count % site.size == 0, InvalidArgument, site.call, ": ", input.count,
                 " elements do not divide among ", site.size,
                 " ranks; parts are equal, so give a multiple of that");
  LOCKSTEP_CHECK(!overlap(input, output), InvalidArgument, site.call,
                 ": input and output lie over each other; it does not work in place");
}

}  // namespace lockstep::comm

#include "libraries/strided.hpp"

#include <algorithm>
#include <sstream>

#include "base/report.hpp"
#include "memory/address_space.hpp"
#include "memory/peer_access.hpp"

namespace simgpu {
namespace {

/// More runs than this are declared as one range: exact, but slow to compare.
constexpr std::size_t declared_runs = 1024;

bool is_empty(const StridedArray& array) {
  return std::any_of(array.extents.begin(), array.extents.end(),
                     [](const Extent& extent) { return extent.count <= 0; });
}

/// From the first to the last byte.
ByteRange hull(const StridedArray& array) {
  std::int64_t low = 0, high = static_cast<std::int64_t>(array.item);
  for (const Extent& extent : array.extents)
    (extent.stride < 0 ? low : high) += (extent.count - 1) * extent.stride;
  return {static_cast<std::byte*>(array.data) + low, static_cast<std::size_t>(high - low)};
}

/// Inner dimensions first, and those without effect left out.
std::vector<Extent> by_stride(const StridedArray& array) {
  std::vector<Extent> extents;
  for (const Extent& extent : array.extents)
    if (extent.count > 1 && extent.stride != 0) extents.push_back(extent);
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return std::abs(a.stride) < std::abs(b.stride);
  });
  return extents;
}

/// Sorts runs and joins those that touch or overlap.
void join(std::vector<ByteRange>& runs) {
  std::sort(runs.begin(), runs.end(),
            [](const ByteRange& a, const ByteRange& b) { return a.data < b.data; });
  std::size_t kept = 0;
  for (const ByteRange& run : runs) {
    if (kept > 0 && runs[kept - 1].data + runs[kept - 1].bytes >= run.data) {
      const std::byte* end =
          std::max(runs[kept - 1].data + runs[kept - 1].bytes, run.data + run.bytes);
      runs[kept - 1].bytes = static_cast<std::size_t>(end - runs[kept - 1].data);
    } else {
      runs[kept++] = run;
    }
  }
  runs.resize(kept);
}

/// Repeats the runs along one dimension.
void repeat(std::vector<ByteRange>& runs, const Extent& extent) {
  const std::size_t base = runs.size();
  runs.reserve(base * static_cast<std::size_t>(extent.count));
  for (std::int64_t i = 1; i < extent.count; ++i)
    for (std::size_t r = 0; r < base; ++r)
      runs.push_back({runs[r].data + i * extent.stride, runs[r].bytes});
  join(runs);
}

std::string shape_of(const StridedArray& array) {
  std::ostringstream text;
  const char* separator = "";
  for (const Extent& extent : array.extents) {
    text << separator << extent.count;
    separator = " x ";
  }
  text << " elements of " << array.item << " bytes, strides of ";
  separator = "";
  for (const Extent& extent : array.extents) {
    text << separator << extent.stride;
    separator = ", ";
  }
  text << " bytes";
  return text.str();
}

}  // namespace

std::vector<ByteRange> byte_ranges(const StridedArray& array, std::size_t limit) {
  if (!array.data || is_empty(array)) return {};
  std::vector<ByteRange> runs{{static_cast<std::byte*>(array.data), array.item}};
  for (const Extent& extent : by_stride(array)) {
    // An inner run that the next dimension continues stays one run: only gaps cost.
    if (runs.size() == 1 && static_cast<std::int64_t>(runs[0].bytes) == std::abs(extent.stride)) {
      if (extent.stride < 0) runs[0].data += (extent.count - 1) * extent.stride;
      runs[0].bytes *= static_cast<std::size_t>(extent.count);
      continue;
    }
    repeat(runs, extent);
  }
  if (runs.size() > limit) return {hull(array)};
  return runs;
}

bool overlap(const StridedArray& one, const StridedArray& other) {
  const auto are_disjoint = [](const ByteRange& a, const ByteRange& b) {
    return a.data + a.bytes <= b.data || b.data + b.bytes <= a.data;
  };
  if (!one.data || !other.data || is_empty(one) || is_empty(other)) return false;
  if (are_disjoint(hull(one), hull(other))) return false;
  const std::vector<ByteRange> left = byte_ranges(one), right = byte_ranges(other);
  for (auto a = left.begin(), b = right.begin(); a != left.end() && b != right.end();)
    if (!are_disjoint(*a, *b))
      return true;
    else if (a->data < b->data)
      ++a;
    else
      ++b;
  return false;
}

void add_accesses(std::vector<Access>& accesses, const StridedArray& array, bool writes) {
  for (const ByteRange& range : byte_ranges(array, declared_runs))
    accesses.push_back({range.data, range.bytes, writes});
}

std::size_t bytes_of(const StridedArray& array) {
  if (array.data == nullptr) return 0;
  std::size_t bytes = array.item;
  for (const Extent& extent : array.extents)
    if (extent.stride != 0) bytes *= static_cast<std::size_t>(extent.count);
  return bytes;
}

bool inside_block(std::string_view operation, const StridedArray& array, const CallSite& site) {
  if (!array.data || is_empty(array)) return true;
  const ByteRange range = hull(array);
  const std::optional<Block> block = block_of(array.data);
  if (block && range.data >= block->data && range.data + range.bytes <= block->data + block->bytes)
    return true;
  std::ostringstream text;
  text << operation << ": " << array.name << " (" << shape_of(array) << ") ";
  if (!is_tracked(array.data))
    text << "at " << array.data << " is not memory of a device";
  else if (!block)
    text << "is not in an allocation";
  else if (range.data < block->data)
    text << "begins " << block->data - range.data << " bytes before its memory";
  else
    text << "ends " << (range.data + range.bytes) - (block->data + block->bytes)
         << " bytes past its memory";
  text << ": " << describe_address(array.data) << "\n  queued by " << describe(site);
  const bool freed = is_tracked(array.data) && !block;
  report(freed ? Finding::use_after_free : Finding::out_of_bounds, text.str());
  return false;
}

bool is_reachable(std::string_view operation, const StridedArray& array, int device,
                  const CallSite& site) {
  if (!is_tracked(array.data) || can_reach(device, array.data)) return true;
  std::ostringstream text;
  text << operation << ": " << array.name << " is memory that device " << device
       << " has no access to (cudaDeviceEnablePeerAccess): " << describe_address(array.data)
       << "\n  queued by " << describe(site);
  report(Finding::peer_access, text.str());
  return false;
}

void expect_initialized(std::string_view operation, const StridedArray& array,
                        const CallSite& site) {
  for (const ByteRange& range : byte_ranges(array)) {
    const std::optional<std::size_t> offset = first_uninitialized(range.data, range.bytes);
    if (!offset) continue;
    std::ostringstream text;
    text << operation << ": reads " << array.name << " (" << shape_of(array) << "), in which byte "
         << (range.data + *offset) - static_cast<std::byte*>(array.data)
         << " was never written: " << describe_address(range.data + *offset) << "\n  queued by "
         << describe(site);
    report(Finding::uninitialized_read, text.str());
    return;
  }
}

void mark_initialized(const StridedArray& array) {
  for (const ByteRange& range : byte_ranges(array)) mark_initialized(range.data, range.bytes);
}

}  // namespace simgpu

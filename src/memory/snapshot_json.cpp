#include <array>
#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "lockstep/memory/memory_snapshot.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

std::uintptr_t number_of(StreamRef stream) {
  return reinterpret_cast<std::uintptr_t>(stream.handle);
}

/// Where PyTorch has stack frames, there is the tag.
Json frames(const std::string& tag) {
  Json all = Json::array();
  if (!tag.empty()) all.push_back({{"name", tag}, {"filename", ""}, {"line", 0}});
  return all;
}

const char* name_of(MemoryAction action) {
  constexpr std::array names{"alloc",         "free_requested", "free_completed",
                             "segment_alloc", "segment_free",   "oom"};
  return names[static_cast<std::size_t>(action)];
}

Json json_of(const MemorySegmentInfo& segment, Device device) {
  Json blocks = Json::array();
  std::size_t allocated = 0, active = 0;
  for (const MemoryBlockInfo& block : segment.blocks) {
    if (block.state == "active_allocated") allocated += block.bytes;
    if (block.state != "inactive") active += block.bytes;
    blocks.push_back({{"address", block.address},
                      {"size", block.bytes},
                      {"requested_size", block.requested_bytes},
                      {"state", block.state},
                      {"frames", frames(block.tag)}});
  }
  return {{"device", device.index},
          {"address", segment.address},
          {"total_size", segment.bytes},
          {"allocated_size", allocated},
          {"active_size", active},
          {"stream", number_of(segment.stream)},
          {"segment_type", segment.small ? "small" : "large"},
          {"segment_pool_id", {0, 0}},
          {"frames", Json::array()},
          {"blocks", std::move(blocks)}};
}

Json json_of(const MemoryEvent& event, const std::vector<std::string>& tags) {
  return {{"action", name_of(event.action)},
          {"addr", event.address},
          {"size", event.bytes},
          {"stream", number_of(event.stream)},
          {"time_us", event.time_us},
          {"frames", frames(event.tag < tags.size() ? tags[event.tag] : std::string())}};
}

Json counts_of(const MemorySnapshot& snapshot) {
  const PoolStatistics& s = snapshot.statistics;
  Json streams = Json::array(), tags = Json::array();
  for (const StreamMemory& stream : snapshot.streams)
    streams.push_back({{"stream", number_of(stream.stream)},
                       {"live_bytes", stream.live_bytes},
                       {"live_blocks", stream.live_blocks},
                       {"free_bytes", stream.free_bytes},
                       {"largest_free_block_bytes", stream.largest_free_block_bytes},
                       {"waiting_bytes", stream.waiting_bytes}});
  for (const TagMemory& tag : snapshot.by_tag)
    tags.push_back({{"tag", tag.tag},
                    {"live_bytes", tag.live_bytes},
                    {"live_blocks", tag.live_blocks},
                    {"peak_live_bytes", tag.peak_live_bytes}});
  return {{"device", lockstep::detail::concat(snapshot.device)},
          {"live_bytes", s.live_bytes},
          {"peak_live_bytes", s.peak_live_bytes},
          {"reserved_bytes", s.reserved_bytes},
          {"peak_reserved_bytes", s.peak_reserved_bytes},
          {"allocations", s.allocations},
          {"upstream_allocations", s.upstream_allocations},
          {"upstream_frees", s.upstream_frees},
          {"out_of_memory_retries", s.out_of_memory_retries},
          {"lost_events", snapshot.lost_events},
          {"streams", std::move(streams)},
          {"tags", std::move(tags)}};
}

}  // namespace

std::string to_json(const std::vector<MemorySnapshot>& snapshots) {
  Json segments = Json::array(), traces = Json::array(), counts = Json::array();
  for (const MemorySnapshot& snapshot : snapshots) {
    for (const MemorySegmentInfo& segment : snapshot.segments)
      segments.push_back(json_of(segment, snapshot.device));
    Json trace = Json::array();
    for (const MemoryEvent& event : snapshot.events) trace.push_back(json_of(event, snapshot.tags));
    traces.push_back(std::move(trace));
    counts.push_back(counts_of(snapshot));
  }
  const Json all{{"segments", std::move(segments)},
                 {"device_traces", std::move(traces)},
                 {"lockstep", std::move(counts)}};
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lockstep

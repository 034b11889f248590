#include "lockstep/parallel/chrome_trace.hpp"

#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/comm/thread_world.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::parallel {
namespace {

using ::testing::ElementsAre;

/// A backward that lasts from one millisecond to another, with a bucket behind it.
ReducerTrace backward(TraceClock::time_point origin, int from, int to, const std::string& bucket) {
  const auto at = [origin](int ms) { return origin + std::chrono::milliseconds(ms); };
  return {.first_gradient = at(from),
          .backward_end = at(to),
          .synchronized = at(to + 1),
          .buckets = {{.label = bucket,
                       .bucket = 0,
                       .bytes = 64,
                       .launched = at(to),
                       .started = at(to),
                       .finished = at(to + 1)}}};
}

TEST(ChromeTrace, HasEachBackwardOnceAndThoseOfAllReplicasOfOne) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "trace.json";
  comm::run_ranks(1, [&](comm::Communicator& group) {
    ChromeTrace trace(group);
    const auto now = TraceClock::now();
    const ReducerTrace decoder = backward(now, 1, 5, "d\xff\"\n"),
                       encoder = backward(now, 3, 6, "enc");
    trace.add(backward(now, -100, -90, "before"));
    for (int i = 0; i < 2; ++i) {  // the second time a captured step's, which leaves what there was
      trace.add(decoder);
      trace.add(encoder);
    }
    trace.add(backward(now, 10, 12, "next"));
    trace.write(path);
  });
  std::ifstream file(path);
  const auto whole = nlohmann::json::parse(file);
  std::vector<std::string> buckets;
  std::vector<int> tracks;
  for (const auto& event : whole["traceEvents"])
    if (event.contains("args") && event["args"].contains("bytes")) {
      buckets.push_back(event["name"]);
      tracks.push_back(event["tid"]);
    }
  EXPECT_THAT(buckets, ElementsAre("d\ufffd\"\n", "enc", "next"));
  EXPECT_THAT(tracks, ElementsAre(1, 3, 1));
}

}  // namespace
}  // namespace lockstep::parallel

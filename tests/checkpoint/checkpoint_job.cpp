// A training run that goes on from its newest checkpoint and saves after each step:
//
//     checkpoint_job FOLDER STEPS [--same] [--kill-at N] [--kill-rank R]
//
// --same: always under the same name. --kill-at N: it dies at the N-th call that changes files, or
// rank R does.
// Prints "resumed STEP HASH", and for each step "step STEP HASH" and, once durable, "saved STEP".

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/training_run.hpp"
#include "io/file_calls.hpp"
#include "lockstep/io/crc32c.hpp"

namespace ls = lockstep;

namespace {

int calls_left = 0;

void count() {
  if (calls_left > 0 && --calls_left == 0) std::raise(SIGKILL);
}

/// Dies before a call, or, at every second number, behind it.
void die_at(int number) {
  calls_left = number;
  auto& calls = ls::io::file_calls;
  calls.create = [](const char* path, mode_t mode) {
    count();
    return ls::io::FileCalls().create(path, mode);
  };
  calls.write = [](int file, const void* data, size_t size) {
    count();
    return ::write(file, data, size);
  };
  calls.fsync = [](int file) {
    count();
    return ::fsync(file);
  };
  calls.close = [](int file) {
    count();
    return ::close(file);
  };
  calls.rename = [](const char* from, const char* to) {
    count();
    return ::rename(from, to);
  };
  calls.exchange = [](const char* one, const char* other) {
    count();
    return ls::io::FileCalls().exchange(one, other);
  };
  calls.make_folder = [](const char* path, mode_t mode) {
    count();
    return ::mkdir(path, mode);
  };
  calls.allocate = [](int file, off_t size) {
    count();
    return ls::io::FileCalls().allocate(file, size);
  };
  calls.resize = [](int file, off_t size) {
    count();
    return ::ftruncate(file, size);
  };
  calls.pwrite = [](int file, const void* data, size_t size, off_t offset) {
    // Half of the bytes may be there when it dies.
    if (calls_left == 1) (void)!::pwrite(file, data, size / 2, offset);
    count();
    return ::pwrite(file, data, size, offset);
  };
}

std::string hash_of(ls::testing::TrainingRun& run) {
  const std::string weights = run.weights();
  return std::to_string(ls::io::crc32c(std::as_bytes(std::span(weights))));
}

}  // namespace

int main(int argc, char** argv) {
  bool same = false;
  int call = 0, rank = 0;
  for (int i = 3; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == "--same") same = true;
    if (option == "--kill-at" && i + 1 < argc) call = std::atoi(argv[i + 1]);
    if (option == "--kill-rank" && i + 1 < argc) rank = std::atoi(argv[i + 1]);
  }
  if (call > 0 && rank == ls::comm::launch_rank()) die_at(call);
  return ls::Session::run(argc, argv, [&](ls::Session& session) {
    ls::testing::TrainingRun run(session.host_world(), argv[1], {});
    const auto tell = [&](const std::string& line) {
      if (session.is_main()) std::cout << line << std::endl;
    };
    run.resume();
    tell("resumed " + std::to_string(run.steps()) + " " + hash_of(run));
    run.on_step = [&](std::int64_t step) {
      tell("step " + std::to_string(step) + " " + hash_of(run));
      run.checkpoints().save(same ? 1 : step);
      if (!run.checkpoints().wait()) throw ls::Error(run.checkpoints().error());
      tell("saved " + std::to_string(step));
    };
    run.train(std::atoll(argv[2]));
    return 0;
  });
}

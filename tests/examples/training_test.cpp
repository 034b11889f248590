// Training runs of the examples, as a user would start them.

#include <map>

#include "examples/jobs.hpp"
#include "lockstep/backend/info.hpp"
#include "lockstep/io/safetensors.hpp"
#include "support/golden.hpp"

namespace examples::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(TrainGpt, LogsEveryStepAndEndsWithHeldOutLossAndSample) {
  const TemporaryFolder folder;
  const auto log_path = folder / "log.jsonl";
  const auto result =
      run_command(tiny_gpt("--steps 150 --lr 1e-2 --log " + log_path.string()), 100);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_LT(held_out_loss(result.output), 4.0);
  EXPECT_THAT(result.output, HasSubstr("--- sample ---\nThe "));

  const auto log = read_log(log_path);
  ASSERT_EQ(log.size(), 150u);
  for (std::size_t step = 0; step < log.size(); ++step) {
    EXPECT_EQ(log[step].at("step"), step);
    for (const char* key : {"loss", "grad_norm", "lr", "tokens_per_s", "ms"})
      EXPECT_GT(log[step].at(key).get<double>(), 0) << key;
  }
  EXPECT_LT(log.back().at("loss").get<double>(), log.front().at("loss").get<double>() - 1.5);
}

// Hosts with other processors: as though rank 1 had none of their vectors.
TEST(TrainGpt, KeepsReplicasEqualOnProcessorsThatDiffer) {
  const TemporaryFolder folder;
  const auto output_with = [&](const std::string& limit) {
    const std::filesystem::path script = folder.write(
        "rank.sh", "[ $OMPI_COMM_WORLD_RANK = 1 ] && export " + limit + "\nexec " +
                       tiny_gpt("--steps 8 --lr 1e-2 --check-divergence 1 --optimizer muon"));
    const auto result = run_command(mpirun(2) + "sh " + script.string(), 100);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return result.output;
  };
  const std::string of_kernels = output_with("LOCKSTEP_CPU_ISA=baseline");
  const std::string of_library = output_with("ONEDNN_MAX_CPU_ISA=SSE41");
  if (lockstep::backend::cpu_instructions().used == "baseline") return;
  EXPECT_THAT(of_kernels, HasSubstr("all compute with baseline"));
  EXPECT_THAT(of_library, HasSubstr("all use SSE41"));
}

TEST(TrainGpt, ContinuesFromWhatItSaved) {
  for (const char* name : {"model", "model.safetensors"}) {
    const TemporaryFolder folder;
    const std::string saved = (folder / name).string();
    const auto first = run_command(tiny_gpt("--steps 40 --lr 1e-2 --save " + saved), 100);
    ASSERT_EQ(first.exit_code, 0) << first.output;
    const auto second = run_command(tiny_gpt("--steps 1 --lr 0 --init-from " + saved), 100);
    ASSERT_EQ(second.exit_code, 0) << second.output;
    EXPECT_EQ(held_out_loss(second.output), held_out_loss(first.output));
  }
}

std::vector<double> losses_of(const std::string& start, const std::string& arguments) {
  const TemporaryFolder folder;
  const auto log_path = folder / "log.jsonl";
  const auto result =
      run_command(start + tiny_gpt("--steps 12 --log " + log_path.string() + " " + arguments), 100);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, Not(HasSubstr("steps ran eagerly")));  // where --capture is given
  std::vector<double> losses;
  for (const auto& step : read_log(log_path)) losses.push_back(step.at("loss"));
  return losses;
}

TEST(TrainGpt, PlansItsBucketsReportsAndTracesThemMpi) {
  const TemporaryFolder folder;
  const auto trace_path = folder / "trace.json";
  const auto by_sizes = run_command(mpirun(2) + tiny_gpt("--steps 12 --bucket-mb 0.01"), 100);
  const auto planned =
      run_command(mpirun(2) + tiny_gpt("--steps 12 --bucket-mb 0.01 --plan measured --timeout 60 "
                                       "--trace " +
                                       trace_path.string()),
                  100);
  ASSERT_EQ(planned.exit_code, 0) << planned.output;
  EXPECT_EQ(held_out_loss(planned.output), held_out_loss(by_sizes.output));
  for (const char* line : {"bucket 0: ", "achieved: ", "predicted: ", "predicted by sizes alone: ",
                           "predicted at best: ", "a message costs "})
    EXPECT_EQ(occurrences(planned.output, line), 1u) << planned.output;

  std::ifstream in(trace_path);
  const auto trace = nlohmann::json::parse(in);
  std::map<std::string, int> backwards, reductions;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const std::string rank = event.at("pid").dump();
    EXPECT_GE(event.at("dur").get<double>(), 0);
    backwards[rank] += event.at("name") == "backward";
    if (event.at("tid") == 1) reductions[rank] += event.at("args").at("bytes").get<int>() > 0;
  }
  EXPECT_EQ(backwards, (std::map<std::string, int>{{"0", 12}, {"1", 12}}));
  EXPECT_GE(reductions["0"], 12);
  EXPECT_EQ(reductions["0"], reductions["1"]);
}

// Names in the program's list, and rates at which a tiny model learns.
TEST(TrainGpt, LearnsWithEveryOptimizerAndSavesAverages) {
  for (const char* choice :
       {"adafactor --lr 5e-2", "adagrad --lr 2e-2", "adam --lr 1e-2", "adamax --lr 1e-2",
        "lamb --lr 2e-2", "lars --lr 10", "lion --lr 2e-3", "muon --lr 1e-2", "nadam --lr 1e-2",
        "radam --lr 1e-2", "rmsprop --lr 3e-3", "sgd --lr 0.5"}) {
    const auto result =
        run_command(tiny_gpt(std::string("--steps 40 --ema 0.5 --optimizer ") + choice), 100);
    ASSERT_EQ(result.exit_code, 0) << result.output;
    EXPECT_LT(held_out_loss(result.output), 5.0) << choice;  // begins at 5.5
  }
}

TEST(TrainGpt, EvaluatesAndSavesTheAverageOfItsWeights) {
  const TemporaryFolder folder;
  const std::string saved = (folder / "model").string();
  const auto first = run_command(tiny_gpt("--steps 40 --lr 1e-2 --ema 0.9 --save " + saved), 100);
  ASSERT_EQ(first.exit_code, 0) << first.output;
  const auto plain = run_command(tiny_gpt("--steps 40 --lr 1e-2"), 100);
  ASSERT_EQ(plain.exit_code, 0) << plain.output;
  EXPECT_NE(held_out_loss(first.output), held_out_loss(plain.output));
  const auto second = run_command(tiny_gpt("--steps 1 --lr 0 --init-from " + saved), 100);
  EXPECT_EQ(held_out_loss(second.output), held_out_loss(first.output));
}

TEST(TrainGpt, RepeatsBitForBitFromTheSameSeed) {
  const auto first = losses_of("", "--deterministic --seed 5");
  EXPECT_EQ(losses_of("", "--deterministic --seed 5"), first);
  EXPECT_NE(losses_of("", "--deterministic --seed 6"), first);
}

TEST(TrainGpt, ComputesTheSameOnAnyNumberOfRanksAndMicroBatchesMpi) {
  const auto expect_same = [](const std::string& options, int ranks, const std::string& more) {
    const auto expected = losses_of("", options), losses = losses_of(mpirun(ranks), options + more);
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], expected[i], 1e-10 * expected[i]) << ranks << " ranks, step " << i;
  };
  for (const int ranks : {2, 3})
    for (const char* micro : {" --micro-batch 0", " --micro-batch 1"})
      expect_same("--dtype f64", ranks, micro);
  expect_same("--dtype f64 --pack", 3, " --micro-batch 1");
}

TEST(TrainGpt, SavesTheSameBitsOnAnyNumberOfRanksWhereReductionsAreReproducibleMpi) {
  const TemporaryFolder folder;
  const auto weights = [&](const std::string& job, const std::string& arguments) {
    const std::string saved = (folder / "model").string();
    const auto result = run_command(
        job + tiny_gpt("--steps 10 --lr 1e-2 --micro-batch 1 --save " + saved + " " + arguments),
        100);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return lockstep::testing::read_file(saved + "/model.safetensors");
  };
  const std::string reproducible = "--reduction reproducible ";
  const std::string expected = weights("", reproducible);
  EXPECT_TRUE(weights(mpirun(2), reproducible + "--bucket-mb 0.01") == expected);
  EXPECT_TRUE(weights(mpirun(4), reproducible + "--plan measured --comm mpi") == expected);
  EXPECT_FALSE(weights(mpirun(4), "") == weights("", ""));
}

TEST(TrainGpt, RefusesReproducibleReductionsThatItCannotMakeMpi) {
  const std::string reproducible = "--reduction reproducible ";
  EXPECT_THAT(run_command(tiny_gpt(reproducible + "--zero 1")).output,
              HasSubstr("--reduction reproducible goes with none of --zero"));
  const auto result = run_command(mpirun(3) + tiny_gpt(reproducible), 100);
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_THAT(result.output, HasSubstr("reproducible over 3 ranks and 4 micro_batches"));
}

TEST(TrainGpt, ComputesTheSameWithStatesThatAreSharedOutMpi) {
  const std::string exact = "--dtype f64 --zero ", in_parts = "--micro-batch 1 ",
                    captured = "--amp f16 --capture ";
  const auto expected = losses_of("", "--dtype f64"), whole = losses_of(mpirun(2), captured);
  for (const char* stage : {"1", "2", "3"}) {
    const bool gathers = stage[0] == '3';  // each rank makes as many forwards, and captures none
    const auto losses = losses_of(mpirun(3), (gathers ? "" : in_parts) + exact + stage);
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], expected[i], 1e-10 * expected[i]) << "stage " << stage;
    if (gathers) continue;
    const auto shared = losses_of(mpirun(2), captured + "--check-divergence 2 --zero " + stage);
    ASSERT_EQ(shared.size(), whole.size());
    for (std::size_t i = 0; i < shared.size(); ++i)  // norms of shards are added in another order
      EXPECT_NEAR(shared[i], whole[i], 1e-5 * whole[i]) << "stage " << stage;
  }
}

TEST(TrainGpt, AveragesAndComparesWeightsThatAreGatheredForItMpi) {
  const std::string arguments =
      "--steps 12 --lr 1e-2 --amp bf16 --ema 0.9 --check-divergence 5 --zero ";
  const auto held_out = [&](const char* stage) {
    const auto result = run_command(mpirun(2) + tiny_gpt(arguments + stage), 100);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return held_out_loss(result.output);
  };
  EXPECT_NEAR(held_out("3"), held_out("0"), 1e-3);  // norms of shards are added in another order
}

TEST(TrainGpt, EndsNearTheLossOfSynchronousTrainingWithAsyncMpi) {
  const auto held_out = [](const std::string& arguments) {
    const auto result =
        run_command(mpirun(2) + tiny_gpt("--steps 240 --lr 1e-2 " + arguments), 100);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return held_out_loss(result.output);
  };
  const double expected = held_out("");
  for (const char* async : {"local:8", "diloco:12", "stale", "local:8 --amp f16 --micro-batch 1"}) {
    const double loss = held_out(std::string("--async ") + async);
    EXPECT_NEAR(loss, expected, 0.05 * expected) << async;
    EXPECT_NE(loss, expected) << async;
  }
}

TEST(TrainGpt, RefusesAsyncThatItDoesNotKnowOrThatDoesNotGoWithOthers) {
  EXPECT_THAT(run_command(tiny_gpt("--async local:0")).output,
              HasSubstr("--async: local:0 is none of none, local:K, diloco:K and stale"));
  EXPECT_THAT(run_command(tiny_gpt("--async stale --compress bf16")).output,
              HasSubstr("neither --zero nor --compress"));
  EXPECT_THAT(run_command(tiny_gpt("--async diloco:4 --ema 0.9")).output,
              HasSubstr("other weights on each rank"));
}

TEST(TrainGpt, TakesTheSameStepsCapturedMpi) {
  for (const int ranks : {1, 2})
    for (const char* precision : {"", "--amp f16"}) {
      const std::string job = ranks == 1 ? "" : mpirun(ranks);
      const std::string options = std::string("--lr 1e-2 --micro-batch 1 ") + precision;
      EXPECT_EQ(losses_of(job, options + " --capture"), losses_of(job, options))
          << ranks << " ranks " << precision;
    }
}

TEST(TrainGpt, WritesTheMemoryOfAStepFromAnyPool) {
  for (const std::string pool : {"caching", "growable", "none"}) {
    const TemporaryFolder folder;
    const auto file = folder / "made/memory.json";
    const auto result = run_command(
        tiny_gpt("--steps 4 --pool " + pool + " --memory-snapshot " + file.string()), 100);
    ASSERT_EQ(result.exit_code, 0) << result.output;
    const auto snapshot = nlohmann::json::parse(std::ifstream(file));
    EXPECT_GT(snapshot.at("device_traces").at(0).size(), 60u) << pool;
    const std::string tags = snapshot.at("lockstep").at(0).at("tags").dump();
    for (const char* tag : {"h.0.mlp: mlp\"", "h.0.attn.c_attn: linear backward\""})
      EXPECT_THAT(tags, HasSubstr(tag)) << pool;
  }
  EXPECT_EQ(run_command(tiny_gpt("--steps 1 --pool buddy"), 100).exit_code, 2);
}

TEST(TrainMnist, ReachesNinetySevenPercentOnTwoRanksMpi) {
  const auto data = lockstep::testing::data_dir() / "mnist";
  if (!exists(data)) GTEST_SKIP() << "no MNIST in " << data << "; set LOCKSTEP_DATA_DIR";
  const TemporaryFolder folder;
  const auto saved = folder / "made/model.safetensors", log_path = folder / "log.jsonl";
  const auto result = run_command(
      mpirun(2) + command("train_mnist", "--device cpu --data " + data.string() + " --save " +
                                             saved.string() + " --log " + log_path.string()),
      240);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_LT(result.seconds, 120 * lockstep::testing::timeout_multiplier);
  const std::string words = "test accuracy ";
  const auto at = result.output.rfind(words);
  ASSERT_NE(at, std::string::npos) << result.output;
  EXPECT_GE(std::stod(result.output.substr(at + words.size())), 97.0);
  EXPECT_EQ(lockstep::io::SafetensorsFile::open(saved).tensor("fc2.bias").numel(), 10);
  EXPECT_EQ(read_log(log_path).size(), 375u);
}

TEST(Mnist, LearnsAsLibtorchsExample) {
  const auto data = lockstep::testing::data_dir() / "mnist";
  if (!exists(data)) GTEST_SKIP() << "no MNIST in " << data << "; set LOCKSTEP_DATA_DIR";
  const auto result =
      run_command(command("mnist", "--device cpu --epochs 2 --data " + data.string()), 240);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, StartsWith("Train epoch 1 [   64/8000] loss 2."));
  EXPECT_EQ(occurrences(result.output, "Test set: average loss "), 2u) << result.output;
  EXPECT_GE(std::stod(result.output.substr(result.output.rfind(' '))), 0.8) << result.output;
}

TEST(Dcgan, TrainsBothNetworksAndDrawsSamples) {
  const auto data = lockstep::testing::data_dir() / "mnist";
  if (!exists(data)) GTEST_SKIP() << "no MNIST in " << data << "; set LOCKSTEP_DATA_DIR";
  const TemporaryFolder folder;
  const auto out = folder / "made";
  const auto result = run_command(
      command("dcgan", "--device cpu --steps 20 --batch 16 --sample-every 10 --samples 3 --data " +
                           data.string() + " --out " + out.string()),
      240);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("[1/30][10] D_loss "));
  EXPECT_EQ(occurrences(result.output, "-> "), 2u) << result.output;
  EXPECT_EQ(occurrences(result.output, "nan"), 0u) << result.output;
  const auto generator = lockstep::io::SafetensorsFile::open(out / "generator.safetensors");
  EXPECT_EQ(generator.tensor("conv1.weight").shape(), (lockstep::Shape{100, 256, 4, 4}));
  const auto discriminator = lockstep::io::SafetensorsFile::open(out / "discriminator.safetensors");
  EXPECT_EQ(discriminator.tensor("8.weight").shape(), (lockstep::Shape{1, 256, 3, 3}));
  EXPECT_EQ(file_size(out / "samples-20.pgm"),
            std::string("P5\n84 28\n255\n").size() + 3 * 28 * 28);
}

// Both of libtorch's examples stop and go on as the other programs do.
TEST(LibtorchExamples, GoOnBitwiseFromTheirCheckpoints) {
  const auto data = lockstep::testing::data_dir() / "mnist";
  if (!exists(data)) GTEST_SKIP() << "no MNIST in " << data << "; set LOCKSTEP_DATA_DIR";
  const TemporaryFolder folder;
  const std::string dcgan = "--device cpu --batch 4 --samples 1 --data " + data.string();
  const auto files = [&](const std::string& name) { return (folder / name).string(); };
  const auto run = [&](const std::string& program, const std::string& arguments) {
    const auto result = run_command(command(program, arguments), 240);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return result.output;
  };
  run("dcgan", dcgan + " --steps 6 --out " + files("whole"));
  for (const char* steps : {"3", "6"})
    run("dcgan", dcgan + " --steps " + steps + " --out " + files("parts") + " --checkpoint-dir " +
                     files("dcgan"));
  for (const char* each : {"generator.safetensors", "discriminator.safetensors", "samples-6.pgm"})
    EXPECT_EQ(lockstep::testing::read_file(folder / "whole" / each) ==
                  lockstep::testing::read_file(folder / "parts" / each),
              true)
        << each;

  const std::string mnist = "--device cpu --batch 1000 --log-interval 1 --data " + data.string();
  const std::string whole = run("mnist", mnist + " --epochs 2");
  const std::string checkpoints = " --checkpoint-dir " + files("mnist");
  const std::string first = run("mnist", mnist + " --epochs 1" + checkpoints);
  EXPECT_EQ(first + run("mnist", mnist + " --epochs 2" + checkpoints), whole);
}

TEST(BenchmarkAllreduce, PrintsTheColumnsOfNcclTestsMpi) {
  const auto result = run_command(mpirun(2) + command("benchmark_allreduce",
                                                      "--comm mpi --max-bytes 64K --factor 8 "
                                                      "--iterations 2 --dtype bf16 "
                                                      "--device cpu"));
  ASSERT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, StartsWith("# 2 ranks, backend mpi"));
  for (const char* column : {"size", "count", "type", "redop", "time", "algbw", "busbw", "#wrong"})
    EXPECT_THAT(result.output, HasSubstr(column));
  EXPECT_EQ(occurrences(result.output, "bf16"), 5u) << result.output;
}

}  // namespace
}  // namespace examples::testing

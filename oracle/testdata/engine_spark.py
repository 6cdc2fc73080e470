"""What mrm aggregate computes, by a cluster of Spark."""
import os

from engine_stats import CELL, answer
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

spark = (SparkSession.builder.master(os.environ["SPARK_MASTER"])
         .config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
         .config("spark.cores.max", "2").config("spark.executor.cores", "1").config("spark.executor.memory", "512m")
         .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")  # the first task waits for both workers
         .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "1200s")
         .config("spark.sql.shuffle.partitions", "4")
         .config("spark.sql.legacy.parquet.nanosAsLong", "true")
         .getOrCreate())
here = "file://" + os.getcwd()
values = spark.read.parquet(here + "/aggregate/run_values").cache()
marginals = values.groupBy("cell").agg(
    f.count_distinct(f.when(f.col("validity") == "marginal", f.col("run_id"))).alias("marginal"))
statistics = [f.count("value").alias("n"), f.avg("value").alias("mean"), f.stddev_samp("value").alias("sd"),
              f.min("value").alias("min"), f.max("value").alias("max")]
numbers = (values.where("value IS NOT NULL").groupBy(*CELL, "region_type", "metric").agg(*statistics)
           .join(marginals, "cell"))
reporting = values.groupBy("cell", "region_type").agg(f.count_distinct("run_id").alias("n"))
labels = (values.where("label IS NOT NULL")
          .groupBy(*CELL, "region_type", f.concat_ws("=", "metric", "label").alias("metric"))
          .agg(f.count("*").alias("k")).join(reporting, ["cell", "region_type"]).join(marginals, "cell"))

folder = f.regexp_replace("_metadata.file_path", "[^/]+$", "").alias("dir")
lives = (spark.read.parquet(here + "/results/*/*/kv_block_lifecycle.parquet")
         .select(folder, ((f.col("last_read_ns") - f.col("first_write_ns")) / 1e9).alias("needed_s")))
each = lives.groupBy("dir").agg(*[
    f.expr(f"percentile_disc({p}) WITHIN GROUP (ORDER BY needed_s)").alias(name)
    for name, p in (("retention_p50_s", 0.5), ("retention_p90_s", 0.9), ("retention_p99_s", 0.99),
                    ("retention_max_s", 1.0))])
each = each.unpivot("dir", [c for c in each.columns if c != "dir"], "metric", "value")
runs = (spark.read.json(here + "/results/*/*/metadata.json", multiLine=True)
        .select(folder, f.col("experiment.name").alias("experiment"), f.col("cell.key").alias("cell"),
                *["cell." + name for name in CELL[2:]]))
in_place = (each.join(runs, "dir").groupBy(*CELL, "metric").agg(*statistics)
            .withColumn("region_type", f.lit("kv_cache")).join(marginals, "cell"))
rows = [[row.asDict() for row in table.collect()] for table in (numbers, labels, in_place)]
executors = spark.sparkContext._jsc.sc().statusStore().executorList(True)
working = sum(executors.apply(i).id() != "driver" and executors.apply(i).totalTasks() > 0
              for i in range(executors.size()))
answer(*rows, working)
spark.stop()

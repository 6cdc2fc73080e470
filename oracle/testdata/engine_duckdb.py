"""What mrm aggregate computes, by DuckDB."""
import duckdb
from engine_stats import CELL, answer

cell = ", ".join(CELL)
duckdb.sql("""CREATE VIEW run_values AS SELECT * FROM read_parquet('aggregate/run_values/*/*/*/*/*.parquet',
    hive_partitioning = true,
    hive_types = {'model_id': VARCHAR, 'n_ctx': INT, 'kv_type': VARCHAR, 'concurrency': INT})""")
duckdb.sql(f"""CREATE VIEW marginals AS SELECT cell, count(DISTINCT run_id) FILTER (validity = 'marginal') AS marginal
    FROM run_values GROUP BY cell""")
duckdb.sql(r"""CREATE VIEW lives AS SELECT regexp_replace(filename, '[^/]+$', '') AS dir,
        (epoch_ns(last_read_ns) - epoch_ns(first_write_ns)) / 1e9 AS needed_s
    FROM read_parquet('results/*/*/kv_block_lifecycle.parquet', filename = true)""")
duckdb.sql(r"""CREATE VIEW runs AS SELECT regexp_replace(filename, '[^/]+$', '') AS dir, experiment.name AS experiment,
        m.cell.key AS cell, m.cell.model_id, m.cell.prompt, m.cell.n_ctx, m.cell.kv_type, m.cell.max_tokens,
        m.cell.concurrency
    FROM read_json('results/*/*/metadata.json', filename = true, union_by_name = true) AS m""")


def rows(query):
    found = duckdb.sql(query)
    return [dict(zip(found.columns, row)) for row in found.fetchall()]


statistics = """count(*) AS n, avg(value) AS mean, stddev_samp(value) AS sd, min(value) AS min, max(value) AS max"""
numbers = rows(f"""SELECT {cell}, region_type, metric, {statistics}, any_value(marginal) AS marginal
    FROM run_values JOIN marginals USING (cell) WHERE value IS NOT NULL GROUP BY {cell}, region_type, metric""")
labels = rows(f"""SELECT {cell}, region_type, metric || '=' || label AS metric, count(*) AS k,
        any_value(n) AS n, any_value(marginal) AS marginal
    FROM run_values JOIN marginals USING (cell)
        JOIN (SELECT cell, region_type, count(DISTINCT run_id) AS n FROM run_values GROUP BY ALL)
            USING (cell, region_type)
    WHERE label IS NOT NULL GROUP BY {cell}, region_type, metric, label""")
in_place = rows(f"""WITH each AS (
        SELECT dir, unnest([{{'metric': 'retention_p50_s', 'value': quantile_disc(needed_s, 0.5)}},
            {{'metric': 'retention_p90_s', 'value': quantile_disc(needed_s, 0.9)}},
            {{'metric': 'retention_p99_s', 'value': quantile_disc(needed_s, 0.99)}},
            {{'metric': 'retention_max_s', 'value': max(needed_s)}}], recursive := true)
        FROM lives GROUP BY dir)
    SELECT {cell}, 'kv_cache' AS region_type, metric, {statistics}, any_value(marginal) AS marginal
    FROM each JOIN runs USING (dir) JOIN marginals USING (cell) GROUP BY {cell}, metric""")
answer(numbers, labels, in_place, 0)

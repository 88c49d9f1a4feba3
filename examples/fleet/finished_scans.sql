-- Views of a lake that show finished scans only, in SQL alone, for Spark 4 with Delta.
-- Apache Spark 4.0 needs: SET spark.sql.scripting.enabled = true
-- Set `lake` and `cluster`. Run it again to see a newer scan.
BEGIN
  DECLARE lake STRING DEFAULT 's3a://lakes/kafka';
  DECLARE cluster STRING DEFAULT 'production';
  DECLARE versions MAP<STRING, BIGINT>;
  DECLARE statement STRING;

  SET statement = 'SELECT max_by(versions, scan_id) FROM delta.`' || lake || '/scans` '
    || 'WHERE cluster_id = ?';
  EXECUTE IMMEDIATE statement INTO versions USING cluster;

  FOR pinned AS SELECT explode(versions) AS (name, version) DO
    SET statement = 'CREATE OR REPLACE TEMPORARY VIEW ' || pinned.name
      || ' AS SELECT * FROM delta.`' || lake || '/' || pinned.name
      || '` VERSION AS OF ' || pinned.version
      || ' WHERE cluster_id = "' || cluster || '"';
    EXECUTE IMMEDIATE statement;
  END FOR;

  SET statement = 'CREATE OR REPLACE TEMPORARY VIEW last_scan AS '
    || 'SELECT finished_at, observed_from, observed_until, '
    || '(unix_micros(observed_until) - unix_micros(observed_from)) / 3600000000 AS observed_hours '
    || 'FROM delta.`' || lake || '/scans` WHERE cluster_id = "' || cluster || '" '
    || 'ORDER BY scan_id DESC LIMIT 1';
  EXECUTE IMMEDIATE statement;
END
